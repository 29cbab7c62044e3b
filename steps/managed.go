package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
)

// PivotPassed tells whether the steps before the pivot are passed over, because the cluster manages itself or is about
// to. It asks the journal and the state folder.
func (p *Plan) PivotPassed(ctx context.Context, j flow.Journal) (bool, error) {
	all, err := p.Graph.Recorded(ctx, j)
	for _, s := range all {
		if s.Name == p.Cluster.Name() {
			return s.Sealed == p.Pivot.Name(), err
		}
	}
	return false, err
}
