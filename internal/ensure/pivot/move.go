package pivot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
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
	// Once more, now that no controller changes them.
	if _, err := p.ensureCopy(ctx, st); err != nil {
		return err
	}
	return p.move(ctx)
}

// awaitMovable waits until a move can succeed: clusterctl refuses a cluster that is still being built, in words that do
// not name the object. A move that has begun to delete is not held up by anything.
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
				return "", wait.Final(fmt.Errorf("namespace %s of the management cluster also holds %s: clusterctl moves a whole "+
					"namespace, "+
					"so these would be moved into cluster %s too; bring them elsewhere first", p.cfg.Namespace,
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

// tieLoose labels the Secrets that clusterctl would leave behind: those without an owner whose names it does not know.
// The Talos bundle is one of them when it was made before its cluster, as after a restore.
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

// move lets clusterctl move, up to the moment when it would unpause the target: that is done in one place only, for a
// move that came through as for one that died there, and after everything was compared.
func (p *pivot) move(ctx context.Context) error {
	c, err := capiinit.NewClusterctl(ctx, p.cfg, p.tools, p.sources)
	if err != nil {
		return err
	}
	copied, err := p.copy.All()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &mover{copy: p.copy, say: p.say, total: len(copied), stop: cancel}
	p.say("moving %d objects to cluster %s", m.total, p.cfg.ClusterName)
	err = c.Move(ctx, clusterctl.MoveOptions{
		FromKubeconfig:               clusterctl.Kubeconfig{Path: p.tools.Files.Path(platform.ManagementKubeconfig)},
		ToKubeconfig:                 clusterctl.Kubeconfig{Path: p.tools.Files.Path(platform.Kubeconfig)},
		Namespace:                    p.cfg.Namespace,
		ExperimentalResourceMutators: []cluster.ResourceMutatorFunc{m.mutate},
	})
	if err != nil && !m.over {
		return fmt.Errorf("move the objects: %w; to continue: %s; to put it back: %s", err, p.tools.Command("pivot"),
			p.tools.Command("pivot", "--abort"))
	}
	return nil
}

// mover receives every object that clusterctl is about to write to the target.
type mover struct {
	copy  records.PivotCopy
	say   flow.Say
	total int
	moved map[capi.ObjectKey]bool
	stop  context.CancelFunc
	over  bool // everything was created at the target and deleted at the source
}

var errHeld = errors.New("the target is unpaused by Slipway, once everything was compared")

// mutate mends an object on its way and keeps it in the copy as it goes: then the copy is what the target has to be,
// whatever a controller still wrote a moment before it saw the pause.
//
// An object that an earlier move had begun to delete carries clusterctl's mark in place of all its annotations, and may
// have a time of deletion, with which the target's API server would refuse it.
func (m *mover) mutate(o *unstructured.Unstructured) error {
	key := capi.ObjectKeyOf(o)
	if o.GetUID() == "" { // no object that was read, but the name of one that is to be unpaused
		if key.Kind != capi.ClusterKind.GroupKind() {
			return nil
		}
		m.over = true
		m.stop()
		return errHeld
	}
	if capi.IsMarked(o) {
		was, err := m.copy.Get(key)
		if err != nil {
			return err
		}
		if was == nil {
			return fmt.Errorf("%s has lost its annotations to an earlier move, and there is no copy of it", key)
		}
		o.SetAnnotations(was.GetAnnotations())
	}
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	if m.moved == nil {
		m.moved = map[capi.ObjectKey]bool{}
	}
	m.moved[key] = true
	m.say("creating %s in the cluster (%d of %d)", key, len(m.moved), m.total)
	return m.copy.Put(o)
}
