package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/session"
)

// runTargets runs targets of the graph.
func runTargets(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	k := c.cluster(a, cfg)
	if a.Options.Prune || a.Options.Abort { // these apply no file
		err = k.ValidateWithoutFiles(commands()...)
	} else {
		err = k.Validate(ctx, commands()...)
	}
	if err != nil {
		return err
	}
	state, err := k.State(ctx)
	if err != nil {
		return err
	}
	if err := session.RefuseDuringRecovery(k.Caller, state); err != nil {
		return err
	}
	return withRun(ctx, c, a, cfg, func(ctx context.Context, r *running) error {
		if err := r.Connect(ctx); err != nil {
			return err
		}
		if err := r.CheckProject(ctx); err != nil {
			return err
		}
		switch {
		case a.Options.Prune:
			return pruneImages(ctx, r)
		case a.Options.Abort:
			return r.AbortPivot(ctx)
		}
		b, err := r.Plan()
		if err != nil {
			return err
		}
		result, err := r.Bootstrap(ctx, b, r.questions())
		if err != nil {
			return err
		}
		return conclude(ctx, r, result, outputs{
			management: b.Plan.Management, clean: b.Plan.Clean, cluster: b.Plan.Cluster, kubeconfig: b.Plan.Kubeconfig,
			talosconfig: b.Plan.Talosconfig, nodes: b.Plan.Nodes, workers: b.Plan.WaitWorkers, access: b.Plan.Access,
		})
	})
}
