package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/pivotcopy"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/settle"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// Pivot is the cluster that manages itself.
type Pivot struct {
	Cluster string  `json:"cluster"` // UID of the Cluster object, which now lives in the cluster that it describes
	Servers []int64 `json:"servers"` // at Hetzner; the same before and after
}

// Pivot adds the step pivot to a graph: the Cluster API objects are moved into the cluster itself. It seals what
// precedes it.
func (s *Set) Pivot(g *flow.Graph) *flow.Step[Pivot] {
	step := newPivotStep(s)
	return flow.Add(g, "pivot", step.run).Seal().ResumeWhen(step.underway).
		Doc("the cluster manages itself; a point of no return").
		Verify(step.verify).Deadline(pivotDeadline(s.cfg)).Waits(waitPivot(s.cfg, s.made.installing)...)
}

// pivotStep runs and verifies the step pivot.
type pivotStep struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

func newPivotStep(s *Set) pivotStep {
	return pivotStep{cfg: s.cfg, tools: s.tools, sources: s.sources, observer: s.observer}
}

// run moves the objects of Cluster API into the cluster that they describe. clusterctl's move is no transaction, so
// this is one around it: it reads where the objects are, does what comes next, and looks again, until the cluster's own
// controllers have reconciled it. It takes no arguments of other steps because it must be able to go on where their
// records are lost or, half moved, cannot be verified any more: it finds both clusters by the files that they left.
func (p pivotStep) run(ctx context.Context, say flow.Say) (Pivot, error) {
	s, err := connectClusters(ctx, p.cfg, p.tools, say)
	if err != nil {
		return Pivot{}, err
	}
	was, err := pivotcopy.In(p.tools).State(p.cfg.ClusterName)
	if err != nil {
		return Pivot{}, err
	}
	for {
		st, err := readBothClusters(ctx, p.cfg, say, s)
		if err != nil {
			return Pivot{}, err
		}
		next, err := st.next(p.cfg.ClusterName)
		if err != nil {
			return Pivot{}, fmt.Errorf("%w%s", err, whereTheCopyIs(p.tools))
		}
		switch {
		case was.Phase == pivotcopy.Settled && st.source == nil:
			// Only the record of it was lost. Whoever paused the cluster since knows why.
			return Pivot{Cluster: string(st.target.GetUID()), Servers: was.Servers}, nil
		case s.self && next == resumeTarget:
			return Pivot{}, fmt.Errorf("cluster %s manages itself already, and its Cluster object is paused: unpause it "+
				"(spec.paused) and run again", p.cfg.ClusterName)
		case next == moveObjects:
			err = moveToTarget(ctx, p.cfg, p.tools, p.sources, p.observer, say, s, st)
		case next == resumeTarget:
			err = p.resumeTarget(ctx, say, s)
		default:
			return settlePivot(ctx, p.cfg, p.tools, p.observer, say, s)
		}
		if err != nil {
			return Pivot{}, err
		}
	}
}

// whereTheCopyIs is the end of an error after which a person may need the copy.
func whereTheCopyIs(tools platform.Tools) string {
	c := pivotcopy.In(tools)
	if objects, err := c.All(); err != nil || len(objects) == 0 {
		return ""
	}
	return fmt.Sprintf("; a copy of every object lies in %s", c.Files)
}

// resumeTarget compares what arrived with the copy, and then lets the cluster's own controllers begin.
func (p pivotStep) resumeTarget(ctx context.Context, say flow.Say, s pivotClusters) error {
	say("comparing every object in cluster %s with the copy", p.cfg.ClusterName)
	if err := compareWithCopy(ctx, p.cfg, p.tools, say, s); err != nil {
		return err
	}
	say("unpausing cluster %s: from here on it manages itself", p.cfg.ClusterName)
	return capi.SetPaused(ctx, p.cfg, s.target, false)
}

// ensureCopy makes the copy complete without changing either cluster. Before anything moved it is simply taken anew. A
// move that an ended run left is another matter: what it has begun to delete has lost its annotations at the source, so
// what the copy already has of it stays, and where there is no copy the target's version is the good one.
func ensureCopy(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, s pivotClusters,
	st clusterLocation) (pivotcopy.State, error) {
	c := pivotcopy.In(tools)
	state, err := c.State(cfg.ClusterName)
	if err != nil {
		return pivotcopy.State{}, err
	}
	inv, err := clusterapi.Read(ctx, s.source, config.Namespace, config.TokenSecretName)
	if err != nil {
		return pivotcopy.State{}, fmt.Errorf("management cluster: %w", err)
	}
	objects := inv.All()
	if st.target != nil {
		if objects, err = mergedCopy(ctx, cfg, s, c, inv); err != nil {
			return pivotcopy.State{}, err
		}
	}
	say("copying %d objects of the management cluster to %s", len(objects), c.Files)
	if state.UID != string(st.source.GetUID()) && state.Phase != pivotcopy.Moving {
		state = pivotcopy.State{}
	}
	if state.Phase == "" || state.Phase == pivotcopy.Settled {
		state = pivotcopy.State{Phase: pivotcopy.Copied, Cluster: cfg.ClusterName, UID: string(st.source.GetUID()),
			Since: time.Now().UTC()}
	}
	// until then its controllers are at work
	if state.Servers == nil && state.Phase == pivotcopy.Copied || st.target == nil && !management.Paused(st.source) {
		if state.Servers, err = settle.ServerIDs(ctx, cfg, tools); err != nil {
			return pivotcopy.State{}, err
		}
	}
	if err := c.Replace(objects); err != nil {
		return pivotcopy.State{}, fmt.Errorf("copy the objects: %w", err)
	}
	return state, c.SetState(state)
}
