package pivot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// moveToTarget brings every object to the target and takes it from the source, from whatever an earlier run left. The
// target's Cluster is paused afterwards.
func (p *pivot) moveToTarget(ctx context.Context, st location) error {
	if err := p.awaitMovable(ctx, st); err != nil {
		return err
	}
	if err := capiinit.Install(ctx, p.cfg, p.tools, p.sources, p.say, platform.Kubeconfig); err != nil {
		return fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	state, err := p.ensureCopy(ctx, st)
	if err != nil {
		return err
	}
	state.Phase = records.Moving
	if err := p.copy.SetState(state); err != nil {
		return err
	}
	p.say("pausing the management cluster's controllers")
	if err := capi.SetPaused(ctx, p.cfg, p.source, true); err != nil {
		return err
	}
	if err := p.tieLoose(ctx); err != nil {
		return err
	}
	if err := p.awaitUnblocked(ctx); err != nil {
		return err
	}
	// Once more, now that no controller changes them.
	if _, err := p.ensureCopy(ctx, st); err != nil {
		return err
	}
	return p.move(ctx)
}

// move moves what the source has now.
func (p *pivot) move(ctx context.Context) error {
	if err := apply.Namespace(ctx, p.cfg, p.say, p.target); err != nil {
		return fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
	if err != nil {
		return fmt.Errorf("management cluster: %w", err)
	}
	copied, err := p.copy.All()
	if err != nil {
		return err
	}
	p.say("moving %d objects to cluster %s", len(copied), p.cfg.ClusterName)
	m := mover{cfg: p.cfg, say: p.say, copy: p.copy, source: p.source, target: p.target, total: len(copied)}
	if err := m.move(ctx, inv.Moved); err != nil {
		return fmt.Errorf("move the objects: %w; to continue: %s; to put it back: %s", err, p.tools.Command("pivot"),
			p.tools.Command("pivot", "--abort"))
	}
	return nil
}

// awaitUnblocked waits while a provider holds an object back that it has to finish with first.
func (p *pivot) awaitUnblocked(ctx context.Context) error {
	return wait.Wait{What: "the providers to let their objects be moved", Within: unblockedWithin}.Until(ctx, p.say,
		func(ctx context.Context) (string, error) {
			inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
			if err != nil {
				return "", err
			}
			var blocked []string
			for i := range inv.Moved {
				if _, is := inv.Moved[i].GetAnnotations()[capi.BlockMove]; is {
					blocked = append(blocked, fmt.Sprintf("%s has the annotation %s", capi.ObjectKeyOf(&inv.Moved[i]),
						capi.BlockMove))
				}
			}
			return strings.Join(blocked, "; "), nil
		})
}

// awaitMovable waits until a move can succeed: a cluster that is still being built is not moved. A move that has begun
// to delete is not held up by anything.
func (p *pivot) awaitMovable(ctx context.Context, st location) error {
	if len(st.marked) > 0 {
		return nil
	}
	state, err := p.copy.State(p.cfg.ClusterName)
	if err != nil {
		return err
	}
	if connect.Paused(st.source) && state.Phase != records.Moving && st.target == nil {
		return fmt.Errorf("the Cluster object in the management cluster is paused, and not by a pivot that this state " +
			"folder knows: " +
			"unpause it (spec.paused), or run pivot --abort, before it is moved")
	}
	return wait.Wait{What: "the cluster to be movable", Within: p.cfg.NodesTimeout.D(),
		Explain: p.observer.Obstacles(p.source, situation.WatchedOf(p.cfg))}.Until(ctx, p.say,
		func(ctx context.Context) (string, error) {
			inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
			if err != nil {
				return "", err
			}
			if others := slices.DeleteFunc(inv.Clusters(),
				func(name string) bool { return name == p.cfg.ClusterName }); len(others) > 0 {
				return "", wait.Final(fmt.Errorf("namespace %s of the management cluster also holds %s: a pivot moves a whole "+
					"namespace, so these would be moved into cluster %s too; bring them elsewhere first", p.cfg.Namespace,
					strings.Join(others, ", "), p.cfg.ClusterName))
			}
			return strings.Join(unmovable(inv), "; "), nil
		})
}

// unmovable says what keeps a cluster from being moved.
func unmovable(inv capi.Inventory) []string {
	var reasons []string
	add := func(o *unstructured.Unstructured, why string) {
		reasons = append(reasons, capi.ObjectKeyOf(o).String()+" "+why)
	}
	for i := range inv.Moved {
		o := &inv.Moved[i]
		if o.GetDeletionTimestamp() != nil {
			add(o, "is being deleted")
			continue
		}
		switch o.GroupVersionKind().GroupKind() {
		case capi.ClusterKind.GroupKind():
			switch {
			case !capi.Truth(o, "status", "infrastructureReady"):
				add(o, "has no infrastructure yet")
			case !capi.ConditionTrue(o, "ControlPlaneInitialized"):
				add(o, "has no initialized control plane yet")
			case !capi.Truth(o, "status", "controlPlaneReady"):
				add(o, "has no ready control plane yet")
			}
		case capi.TalosControlPlaneKind.GroupKind():
			want, have, ready := capi.Number(o, "spec", "replicas"), capi.Number(o, "status", "replicas"),
				capi.Number(o, "status", "readyReplicas")
			if have != want || ready != want {
				add(o, fmt.Sprintf("has %d of %d replicas, %d ready", have, want, ready))
			}
		case capi.MachineKind.GroupKind():
			if capi.Text(o, "status", "nodeRef", "name") == "" {
				add(o, "has no node yet")
			}
		}
	}
	return reasons
}

// tieLoose labels the Secrets that belong to the cluster by their names alone, so that every mover knows them for its
// own, also where the Cluster object is gone. The Talos bundle is one of them when it was made before its cluster, as
// after a restore.
func (p *pivot) tieLoose(ctx context.Context) error {
	inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
	if err != nil {
		return fmt.Errorf("management cluster: %w", err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+capi.MoveLabel+`":""}}}`))
	for i := range inv.Loose {
		o := &inv.Loose[i]
		p.say("labelling Secret %s, which has no owner, so that it is moved", o.GetName())
		if err := p.source.Patch(ctx, o, patch); err != nil {
			return fmt.Errorf("label Secret %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// mergedCopy is the copy of a move that an ended run left incomplete.
func (p *pivot) mergedCopy(ctx context.Context, source capi.Inventory) ([]unstructured.Unstructured, error) {
	has, err := p.copy.All()
	if err != nil {
		return nil, err
	}
	target, err := capi.ReadInventory(ctx, p.target, p.cfg.Namespace)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	var merged []unstructured.Unstructured
	known := map[capi.ObjectKey]bool{}
	add := func(o *unstructured.Unstructured) {
		if k := capi.ObjectKeyOf(o); !known[k] {
			known[k] = true
			merged = append(merged, *o)
		}
	}
	for _, o := range has {
		add(o)
	}
	for _, o := range source.All() {
		if !capi.IsMarked(&o) {
			add(&o)
		}
	}
	for _, o := range target.All() {
		add(&o)
	}
	return merged, nil
}
