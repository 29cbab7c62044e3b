package planning

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// RefusedError is what steps of a run would refuse, because it needs consent or cannot be done as it is configured.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// Refusals is a RefusedError with what the steps apply, workers and clean of a run of targets would refuse, so that a
// run that is refused changes nothing; nil: they would refuse nothing. Another error is why that is not known. It
// changes nothing.
func (b Bootstrap) Refusals(ctx context.Context, j flow.Journal, targets []string) error {
	foreseen, err := b.Plan.Graph.Predict(ctx, j, targets, false)
	if err != nil {
		return nil // the run itself says it better
	}
	would, could := wouldRun(foreseen), wouldRun(foreseen)
	for _, f := range foreseen {
		could[f.Name] = would[f.Name] || f.Action == flow.ActionReuse
	}
	err = b.refused(ctx, foreseen, could)
	if _, refuses := errors.AsType[*RefusedError](err); !refuses {
		if would[b.Plan.Cluster.Name()] || would[b.Plan.Workers.Name()] {
			return err
		}
		return nil
	}
	// A step refuses only if it runs, and whether it does needs what takes time: to verify what was done.
	if foreseen, err = b.Plan.Graph.Predict(ctx, j, targets, true); err != nil {
		return nil
	}
	return b.refused(ctx, foreseen, wouldRun(foreseen))
}

// refused is a RefusedError with what these steps would refuse.
func (b Bootstrap) refused(ctx context.Context, foreseen []flow.Prediction, would map[string]bool) error {
	refused, err := wait.PromptlyFrom(ctx, silent, func(ctx context.Context) (refused, err error) {
		return b.refusedObjects(ctx, would[b.Plan.Cluster.Name()], would[b.Plan.Workers.Name()])
	})
	pivoted := slices.ContainsFunc(foreseen, func(f flow.Prediction) bool {
		return f.Name == b.Plan.Pivot.Name() && f.Action == flow.ActionReuse
	})
	if pivoted && would[b.Plan.Clean.Name()] {
		_, ofClean := wait.PromptlyFrom(ctx, silent, func(ctx context.Context) (none struct{}, err error) {
			return none, b.Plan.RefuseClean(ctx)
		})
		refused = errors.Join(refused, ofClean)
	}
	if refused != nil {
		return &RefusedError{refused}
	}
	return err
}

// refusedObjects is what the steps apply and workers would refuse, of those that would run.
func (b Bootstrap) refusedObjects(ctx context.Context, apply, workers bool) (refused, err error) {
	if !apply && !workers {
		return nil, nil
	}
	manager, self, err := b.manager(ctx)
	if err != nil || manager == nil {
		return nil, err
	}
	apply = apply && !self
	if apply {
		all, err := b.applyConsequences(ctx, manager)
		if err != nil {
			return nil, err
		}
		refused = b.Plan.RefuseApply(ctx, b.Cfg, b.Tools, manager, all)
	}
	if workers {
		objects, all, err := b.poolConsequences(ctx, manager)
		if err != nil {
			return refused, err
		}
		if len(objects)+len(all) > 0 {
			ofWorkers, err := b.Plan.RefuseWorkers(ctx, b.Cfg, b.Tools, manager, objects, all, apply)
			return errors.Join(refused, ofWorkers), err
		}
	}
	return refused, nil
}
