package pivot

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
)

// ensureCopy makes the copy complete without changing either cluster. Before anything moved it is simply taken anew. A
// move that an ended run left is another matter: what it has begun to delete has lost its annotations at the source, so
// what the copy already has of it stays, and where there is no copy the target's version is the good one.
func (p *pivot) ensureCopy(ctx context.Context, st location) (records.PivotState, error) {
	state, err := p.copy.State(p.cfg.ClusterName)
	if err != nil {
		return records.PivotState{}, err
	}
	inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
	if err != nil {
		return records.PivotState{}, fmt.Errorf("management cluster: %w", err)
	}
	objects := inv.All()
	if st.target != nil {
		if objects, err = p.mergedCopy(ctx, inv); err != nil {
			return records.PivotState{}, err
		}
	}
	p.say("copying %d objects of the management cluster to %s", len(objects), p.copy.Files)
	if state.UID != string(st.source.GetUID()) && state.Phase != records.Moving {
		state = records.PivotState{}
	}
	if state.Phase == "" || state.Phase == records.Settled {
		state = records.PivotState{Phase: records.Copied, Cluster: p.cfg.ClusterName, UID: string(st.source.GetUID()),
			Since: time.Now().UTC()}
	}
	// until then its controllers are at work
	if state.Servers == nil && state.Phase == records.Copied || st.target == nil && !connect.Paused(st.source) {
		if state.Servers, err = ServerIDs(ctx, p.cfg, p.tools); err != nil {
			return records.PivotState{}, err
		}
	}
	if err := p.copy.Replace(objects); err != nil {
		return records.PivotState{}, fmt.Errorf("copy the objects: %w", err)
	}
	return state, p.copy.SetState(state)
}
