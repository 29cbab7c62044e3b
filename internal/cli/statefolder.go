package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// stateOf is the folder to read the state from: the state folder that the arguments name or, where the store that STATE
// names has another content, a view of that. It removes and replaces no file of the state folder.
func stateOf(ctx context.Context, c *console, a arguments, cfg settings.Configuration) (statedir.Dir, error) {
	state, err := localStateOf(ctx, c, a, cfg)
	if err != nil {
		return state, err
	}
	return viewState(ctx, c, a, cfg, state)
}

// localStateOf is the state folder that the arguments name. A folder that belongs to another cluster is a usageError:
// no target reads, changes or deletes one cluster's state under the name of another.
func localStateOf(ctx context.Context, c *console, a arguments, cfg settings.Configuration) (statedir.Dir, error) {
	state := statedir.New(a.Options.StateDir, cfg.ClusterName, c.workDir)
	return state, state.CheckOwner(ctx, statedir.OwnerOf(cfg.Config))
}

// configAndState reads the configuration that the arguments name, and finds its state folder.
func configAndState(ctx context.Context, c *console, a arguments) (settings.Configuration, statedir.Dir, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return cfg, "", err
	}
	state, err := stateOf(ctx, c, a, cfg)
	return cfg, state, err
}

// labConfigAndState is configAndState for the targets of the lab alone.
func labConfigAndState(ctx context.Context, c *console, a arguments) (settings.Configuration, statedir.Dir, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return cfg, "", err
	}
	state, err := labStateOf(ctx, c, a, cfg)
	return cfg, state, err
}

// labStateOf is stateOf for the targets of the lab alone. They need no cluster's name, so only one that was given is
// checked.
func labStateOf(ctx context.Context, c *console, a arguments, cfg settings.Configuration) (statedir.Dir, error) {
	if _, given := cfg.Places[settings.Variable("CLUSTER_NAME").Field]; given {
		return localStateOf(ctx, c, a, cfg)
	}
	return statedir.New(a.Options.StateDir, cfg.ClusterName, c.workDir), nil
}

// refuseOtherProject refuses a token of another Hetzner project than the one that the folder's cluster is in, and a
// folder whose cluster another one has taken over.
func refuseOtherProject(ctx context.Context, r *running) error {
	err := claims.CheckProject(ctx, r.cfg.Config, r.tools)
	other, went := (*claims.OtherProjectError)(nil), (*claims.WentOverError)(nil)
	if errors.As(err, &other) || errors.As(err, &went) {
		return &usage.Error{Err: err}
	}
	if err != nil && errors.Is(errors.Join(err, context.Cause(ctx)), flow.ErrInterrupted) {
		return fmt.Errorf("find out whether the token is of the cluster's project: %w", err)
	}
	return err
}

// refuseWentOver refuses a recovery of a cluster that another state folder has taken over: its last step would fail.
func refuseWentOver(ctx context.Context, r *running) error {
	err := claims.CheckProject(ctx, r.cfg.Config, r.tools)
	if went := (*claims.WentOverError)(nil); errors.As(err, &went) {
		return &usage.Error{Err: err}
	}
	return nil // the recovery asks Hetzner, too
}
