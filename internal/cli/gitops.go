package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// refuseMissingRepository refuses Flux without a repository. A lab has one of its own.
func refuseMissingRepository(cfg settings.Configuration, inLab bool) error {
	if err := cfg.MissingGitURL(); err != nil && !inLab {
		return &usage.Error{Err: err}
	}
	return nil
}

// gitAccess reads what the Git repository is read with.
func gitAccess(ctx context.Context, c *console, cfg settings.Configuration, inLab bool) (platform.GitAccess, error) {
	if err := refuseMissingRepository(cfg, inLab); err != nil {
		return platform.GitAccess{}, err
	}
	access, err := cfg.GitAccess(ctx, c.environment)
	c.hide.Learn(access.Token.Reveal(), access.Key.Reveal())
	return access, err
}
