package steps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Pivot is the cluster that manages itself.
type Pivot struct {
	Cluster string  `json:"cluster"` // UID of the Cluster object, which now lives in the cluster that it describes
	Servers []int64 `json:"servers"` // at Hetzner; the same before and after
}

// pivot moves the objects of Cluster API into the cluster that they describe. clusterctl's move is no transaction, so
// this is one around it: it reads where the objects are, does what comes next, and looks again, until the cluster's own
// controllers have reconciled it. It takes no arguments of other steps because it must be able to go on where their
// records are lost or, half moved, cannot be verified any more: it finds both clusters by the files that they left.
func (b *bootstrapper) pivot(ctx context.Context, say flow.Say) (Pivot, error) {
	s, err := b.openSides(ctx, say)
	if err != nil {
		return Pivot{}, err
	}
	was, err := b.pivotCopy().state(b.cfg.ClusterName)
	if err != nil {
		return Pivot{}, err
	}
	for {
		st, err := b.look(ctx, say, s)
		if err != nil {
			return Pivot{}, err
		}
		next, err := st.next(b.cfg.ClusterName)
		if err != nil {
			return Pivot{}, fmt.Errorf("%w%s", err, b.whereTheCopyIs())
		}
		switch {
		case was.Phase == pivotSettled && st.source == nil:
			// Only the record of it was lost. Whoever paused the cluster since knows why.
			return Pivot{Cluster: string(st.target.GetUID()), Servers: was.Servers}, nil
		case s.self && next == resumeTarget:
			return Pivot{}, fmt.Errorf("cluster %s manages itself already, and its Cluster object is paused: unpause it (spec.paused) and run again", b.cfg.ClusterName)
		case next == moveObjects:
			err = b.moveObjects(ctx, say, s, st)
		case next == resumeTarget:
			err = b.resumeTarget(ctx, say, s)
		default:
			return b.settle(ctx, say, s)
		}
		if err != nil {
			return Pivot{}, err
		}
	}
}

// whereTheCopyIs is the end of an error after which a person may need the copy.
func (b *bootstrapper) whereTheCopyIs() string {
	c := b.pivotCopy()
	if objects, err := c.all(); err != nil || len(objects) == 0 {
		return ""
	}
	return fmt.Sprintf("; a copy of every object lies in %s", c.files)
}

// resumeTarget compares what arrived with the copy, and then lets the cluster's own controllers begin.
func (b *bootstrapper) resumeTarget(ctx context.Context, say flow.Say, s sides) error {
	say("comparing every object in cluster %s with the copy", b.cfg.ClusterName)
	if err := b.compareWithCopy(ctx, say, s); err != nil {
		return err
	}
	say("unpausing cluster %s: from here on it manages itself", b.cfg.ClusterName)
	return b.setPaused(ctx, s.target, false)
}

// setPaused is the one place where Slipway pauses or unpauses. Unpaused, the field goes, so that nobody owns it.
func (b *bootstrapper) setPaused(ctx context.Context, c *kube.Cluster, pause bool) error {
	o, err := get(ctx, c, clusterKind, b.cfg.ClusterName)
	if err != nil {
		return err
	}
	value := "null"
	if pause {
		value = "true"
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":`+value+`}}`))
	if err := c.Patch(ctx, o, patch); err != nil {
		return fmt.Errorf("set spec.paused of %s: %w", kube.Describe(o), err)
	}
	return nil
}

// serverIDs are the cluster's servers at Hetzner, sorted.
func (b *bootstrapper) serverIDs(ctx context.Context) ([]int64, error) {
	servers, err := hetzner.Servers(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	ids := []int64{}
	for _, server := range servers {
		ids = append(ids, server.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// ensureCopy makes the copy complete without changing either cluster. Before anything moved it is simply taken anew. A
// move that a dead run left is another matter: what it has begun to delete has lost its annotations at the source, so
// what the copy already has of it stays, and where there is no copy the target's version is the good one.
func (b *bootstrapper) ensureCopy(ctx context.Context, say flow.Say, s sides, st standing) (pivotState, error) {
	c := b.pivotCopy()
	state, err := c.state(b.cfg.ClusterName)
	if err != nil {
		return pivotState{}, err
	}
	inv, err := clusterapi.Read(ctx, s.source, Namespace, TokenSecretName)
	if err != nil {
		return pivotState{}, fmt.Errorf("management cluster: %w", err)
	}
	objects := inv.All()
	if st.target != nil {
		if objects, err = b.mergedCopy(ctx, s, c, inv); err != nil {
			return pivotState{}, err
		}
	}
	say("copying %d objects of the management cluster to %s", len(objects), c.files)
	if state.UID != string(st.source.GetUID()) && state.Phase != pivotMoving {
		state = pivotState{}
	}
	if state.Phase == "" || state.Phase == pivotSettled {
		state = pivotState{Phase: pivotCopied, Cluster: b.cfg.ClusterName, UID: string(st.source.GetUID()), Since: time.Now().UTC()}
	}
	if state.Servers == nil && state.Phase == pivotCopied || st.target == nil && !paused(st.source) { // until then its controllers are at work
		if state.Servers, err = b.serverIDs(ctx); err != nil {
			return pivotState{}, err
		}
	}
	if err := c.replace(objects); err != nil {
		return pivotState{}, fmt.Errorf("copy the objects: %w", err)
	}
	return state, c.setState(state)
}
