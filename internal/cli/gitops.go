package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/platform"
)

// gitAccess reads what the Git repository is read with. A lab has a repository of its own.
func gitAccess(ctx context.Context, c *console, cfg settings.Configuration, inLab bool) (platform.GitAccess, error) {
	if err := cfg.MissingGitURL(); err != nil && !inLab {
		return platform.GitAccess{}, &usage.Error{Err: err}
	}
	access, err := cfg.GitAccess(ctx, c.environment)
	c.hide.Learn(access.Token.Reveal(), access.Key.Reveal())
	return access, err
}
