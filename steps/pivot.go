package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/pivot"
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
	return flow.Add(g, flow.Task[Pivot]{
		Name:       "pivot",
		Doc:        "the cluster manages itself; a point of no return",
		Run:        flow.Do(s.runPivot),
		Verify:     verifyIn(s, platform.Kubeconfig, s.verifyPivot),
		Deadline:   pivot.Deadline(s.cfg),
		Waits:      pivot.Waits(s.cfg, s.made.installing),
		Seal:       true,
		ResumeWhen: s.pivotUnderway,
	})
}

func (s *Set) runPivot(ctx context.Context, say flow.Say) (Pivot, error) {
	moved, err := pivot.Run(ctx, s.cfg, s.tools, s.sources, s.observer, say)
	return Pivot(moved), err
}

// verifyPivot asks only whether the cluster still is its own manager. Whether it is paused for maintenance, or has more
// servers than it had, is not the pivot's business any more.
func (s *Set) verifyPivot(ctx context.Context, self *kube.Cluster, was Pivot) flow.Verdict {
	is, err := capi.Get(ctx, self, s.cfg.Namespace, capi.ClusterKind, s.cfg.ClusterName)
	switch {
	case kube.Absent(err):
		return flow.Gone("cluster %s does not hold its Cluster object any more", s.cfg.ClusterName)
	case err != nil:
		return flow.Unknown(fmt.Errorf("ask cluster %s: %w", s.cfg.ClusterName,
			situation.ExplainSilence(ctx, s.cfg, s.tools, s.sources, self, err)))
	case string(is.GetUID()) != was.Cluster && is.GetAnnotations()[capi.ReadoptedAnnotation] == "":
		// with the annotation, a readoption has put it back
		return flow.Gone("the Cluster object is another one than the recorded")
	}
	return flow.Holds()
}

// RemovePivotSecrets removes the Secrets that the pivot of an older release, which kept them, left in the state folder.
// The copy of a pivot that is not over is left as it is.
func (p *Plan) RemovePivotSecrets() error {
	c := records.PivotCopyOf(p.b.tools)
	state, err := c.State(p.b.cfg.ClusterName)
	if err != nil || state.Phase != records.Settled {
		return err
	}
	return c.RemoveSecrets()
}

// AbortPivot puts a pivot that has not deleted anything yet back: the copies leave the target, and the management
// cluster's controllers reconcile again. The caller holds the journal's lock.
func (p *Plan) AbortPivot(ctx context.Context, say flow.Say) error {
	return pivot.Abort(ctx, p.b.cfg, p.b.tools, say)
}

// pivotUnderway tells flow that the point of no return was passed although the journal does not say so.
func (s *Set) pivotUnderway() (bool, error) {
	return records.PivotCopyOf(s.tools).Underway(s.cfg.ClusterName)
}
