package operations

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// logsTail is with how many lines of each container following begins.
const logsTail = 10

// LogsOptions are the choices of Logs. Lines < 0: all lines; when it follows without Since, the last 10 of each
// container.
type LogsOptions struct {
	logs.Options
	Names    []string // of controllers; empty: all
	NoFollow bool     // stop after the existing lines
}

// Logs passes on what the controllers write. It runs until ctx is cancelled, or with NoFollow to the end of the
// existing lines; an interruption is not an error.
func Logs(ctx context.Context, k session.Cluster, o LogsOptions) error {
	if o.Since < 0 {
		return usage.Errorf("--since %s is negative: 10m means what is not older than ten minutes", o.Since)
	}
	state, err := k.State(ctx)
	if err != nil {
		return err
	}
	if o.Controllers, err = logs.Wanted(o.Names, k.Cfg.Config); err != nil {
		return err
	}
	at, err := k.Inspect(ctx, state)
	if err != nil {
		return err
	}
	if environment, err := state.Environment(); err == nil && at.Offline != "" && (k.Lab ||
		environment == statedir.EnvironmentLab) {
		return errors.New(at.Offline) // Hetzner is not needed for it
	}
	o.Secret = func(s string) { k.Caller.Hide.Learn(s) }
	if o.NoFollow {
		return logs.Read(ctx, at.Cfg.Config, at.Tools, o.Options)
	}
	if o.Lines < 0 && o.Since == 0 {
		o.Lines = logsTail
	}
	logs.Follow(ctx, at.Cfg.Config, at.Tools, o.Options)
	if cause := context.Cause(ctx); !errors.Is(cause, flow.ErrInterrupted) {
		return cause
	}
	return nil
}
