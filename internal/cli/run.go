package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runTargets runs targets of the graph.
func runTargets(ctx context.Context, c *call) error {
	k, err := c.load()
	if err != nil {
		return err
	}
	if c.Prune || c.Abort { // these apply no file
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
	outliveReaders()
	return k.Do(ctx, c.displays(), func(ctx context.Context, s *session.Session) error {
		if err := s.Connect(ctx); err != nil {
			return err
		}
		if err := s.CheckProject(ctx); err != nil {
			return err
		}
		switch {
		case c.Prune:
			return pruneImages(ctx, c, s)
		case c.Abort:
			return s.AbortPivot(ctx)
		}
		b, err := s.Plan()
		if err != nil {
			return err
		}
		switch applies, err := operations.AppliesToItself(ctx, s.Targets, b, s.Journal()); {
		case err != nil:
			return err
		case applies:
			return s.Locked(ctx, func(ctx context.Context) error {
				_, err := operations.Apply(ctx, s, b, c.Apply, c.questions(s))
				return err
			})
		case c.Apply != operations.ApplyOptions{}:
			return errOfApply
		}
		result, err := operations.RunTargets(ctx, s, b, c.questions(s))
		if err != nil {
			return err
		}
		return conclude(ctx, c, s, result, operations.Outputs{
			Management: b.Plan.Management, Clean: b.Plan.Clean, Cluster: b.Plan.Cluster, Kubeconfig: b.Plan.Kubeconfig,
			Talosconfig: b.Plan.Talosconfig, Nodes: b.Plan.Nodes, Workers: b.Plan.WaitWorkers, Access: b.Plan.Access,
		})
	})
}

var errOfApply = usage.Errorf("--in-place and --pause-after go with \"apply\" alone, in a cluster that manages " +
	"itself; nothing was changed")
