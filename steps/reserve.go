package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/platform"
)

// Reservation is this state folder's reservation of the cluster's name in the Hetzner project.
type Reservation struct {
	ID int64  `json:"id"`
	By string `json:"by"` // identity of the state folder
}

// Reserve adds the step reserve to a graph: the name of the cluster is reserved in the Hetzner project.
func (s *Set) Reserve(g *flow.Graph) *flow.Step[Reservation] {
	step := newReserveStep(s)
	return flow.Add(g, flow.Task[Reservation]{
		Name: claims.Step,
		Doc: "the cluster's name is this state folder's in the Hetzner project: no other makes a second cluster " +
			"into the first",
		Run:      flow.Do(step.run),
		Spec:     map[string]string{"clusterName": s.cfg.ClusterName},
		Verify:   step.verify,
		Deadline: wait.ReservedWithin + wait.Overhead,
		Waits:    []flow.Wait{wait.Reserved},
	})
}

// reserveStep runs and verifies the step reserve.
type reserveStep struct {
	cfg   config.Config
	tools platform.Tools
}

func newReserveStep(s *Set) reserveStep {
	return reserveStep{cfg: s.cfg, tools: s.tools}
}

func (step reserveStep) run(ctx context.Context, say flow.Say) (Reservation, error) {
	found, err := claims.Reserve(ctx, step.cfg, step.tools, say)
	if err != nil {
		return Reservation{}, err
	}
	return Reservation{ID: found.ID, By: found.By}, nil
}

func (step reserveStep) verify(ctx context.Context, was Reservation) flow.Verdict {
	return claims.VerifyName(ctx, step.cfg, step.tools, was.ID, was.By)
}
