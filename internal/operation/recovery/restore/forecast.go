package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
)

// Explain says what a change of what a step is made from is.
func (p *Plan) Explain(c flow.Change) []changes.Difference {
	return changes.Explain(p.in.tools, p.in.sources, c)
}

// Losses says what a restore cannot bring back, and what becomes of the cluster's address. It changes nothing. Where
// the cluster is not lost its error wraps ErrAlive, and where another state folder recovers it, it is a
// *RecoveringError, as the restore's would be.
func (p *Plan) Losses(ctx context.Context, now time.Time) ([]string, error) {
	r := lostStep{p.in}
	mine, err := r.underway()
	if err != nil {
		return nil, err
	}
	if err := r.refuse(ctx, func(string, ...any) {}, mine); err != nil {
		return nil, err
	}
	taken := r.source.Contents.Header.Taken
	since := now.Sub(taken).Round(time.Second)
	if since > time.Hour {
		since = since.Round(time.Minute)
	}
	losses := []string{
		fmt.Sprintf("the cluster comes back as it was at %s: what was written in the %s since is lost",
			taken.Local().Format(time.DateTime), config.Duration(since)),
		"what lay on the lost servers' own disks is lost; volumes at Hetzner are kept",
	}
	_, notes, err := r.survivors(ctx)
	return append(losses, notes...), err
}

// Bill tells what a restore that would do this makes at Hetzner, and what that costs a month: what the backup's objects
// ask for and has not survived.
func (p *Plan) Bill(ctx context.Context, foreseen []flow.Prediction, _ []changes.Consequence) (orders.Bill,
	error) {
	would := map[string]bool{}
	for _, f := range foreseen {
		would[f.Name] = f.Action == flow.ActionRun || f.Action == flow.ActionMayRun
	}
	if !would[p.Cluster.Name()] && !would[p.Target.Name()] && !would[p.Image.Name()] {
		return orders.Bill{}, nil
	}
	more := orders.Extra{Image: would[p.Image.Name()], Firewall: p.Firewall != nil && would[p.Firewall.Name()]}
	return orders.Missing(ctx, p.in.cfg, p.in.tools, orders.Of(p.in.source.Wanted(), p.in.cfg.PreferredLocation()), more)
}

// Consequences are none: what a restore does to a cluster is that it is there again.
func (p *Plan) Consequences(context.Context, []flow.Prediction) ([]changes.Consequence, error) {
	return nil, nil
}
