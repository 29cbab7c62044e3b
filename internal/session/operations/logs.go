package operations

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// logsTail is with how many lines of each container following begins.
const logsTail = 10

// LogsOptions are the choices of Logs.
type LogsOptions struct {
	Controllers []string      // names; empty: all
	Since       time.Duration // how far back; 0: as far as Tail
	Tail        int64         // lines of each container; below 0: by whether it follows
	NoFollow    bool          // end behind what is there

	Line func(logs.Line)                   // is called by many at once
	Note func(about logs.Line, why string) // why something is not read
}

// Logs passes on what the controllers write. To be interrupted is how it ends.
func Logs(ctx context.Context, k session.Cluster, o LogsOptions) error {
	if o.Since < 0 {
		return usage.Errorf("--since %s is negative: 10m means what is not older than ten minutes", o.Since)
	}
	state, err := k.State(ctx)
	if err != nil {
		return err
	}
	wanted, err := logs.Wanted(o.Controllers, k.Cfg.Config)
	if err != nil {
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
	wish := logs.Options{
		Controllers: wanted, Since: o.Since, Lines: o.Tail,
		Line: o.Line, Note: o.Note, Secret: func(s string) { k.Caller.Hide.Learn(s) },
	}
	if o.NoFollow {
		return logs.Read(ctx, at.Cfg.Config, at.Tools, wish)
	}
	if wish.Lines < 0 && wish.Since == 0 {
		wish.Lines = logsTail
	}
	logs.Follow(ctx, at.Cfg.Config, at.Tools, wish)
	if cause := context.Cause(ctx); !errors.Is(cause, flow.ErrInterrupted) {
		return cause
	}
	return nil
}
