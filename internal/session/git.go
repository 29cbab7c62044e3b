package session

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/platform"
)

// CheckRepository refuses Flux without a repository. A lab has one of its own.
func (k Cluster) CheckRepository() error {
	if err := k.Cfg.MissingGitURL(); err != nil && !k.Lab {
		return &usage.Error{Err: err}
	}
	return nil
}

// gitAccess reads what the Git repository is read with.
func (k Cluster) gitAccess(ctx context.Context) (platform.GitAccess, error) {
	if err := k.CheckRepository(); err != nil {
		return platform.GitAccess{}, err
	}
	if !k.Caller.Git.Empty() {
		return k.Caller.Git, nil
	}
	access, err := k.Cfg.GitAccess(ctx, k.Caller.Environment)
	k.Caller.Hide.Learn(access.Token.Reveal(), access.Key.Reveal())
	return access, err
}
