package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
)

// targetsNow are the steps that targets mean, as far as the journal says that the cluster has come: once it manages
// itself, the target bootstrap means what can still be run of it.
func targetsNow(ctx context.Context, plan *steps.Plan, j flow.Journal, words []string) ([]string, error) {
	managed, err := plan.PivotPassed(ctx, j)
	if err != nil {
		return nil, err
	}
	return resolveTargets(words, plan, managed)
}
