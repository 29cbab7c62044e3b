package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
)

// Reservation is this state folder's reservation of the cluster's name in the Hetzner project.
type Reservation struct {
	ID int64  `json:"id"`
	By string `json:"by"` // identity of the state folder
}

// Reserve adds the step reserve to a graph: the name of the cluster is reserved in the Hetzner project.
func (s *Set) Reserve(g *flow.Graph) *flow.Step[Reservation] {
	return flow.Add(g, flow.Task[Reservation]{
		Name: claims.Step,
		Doc: "the cluster's name is this state folder's in the Hetzner project: no other makes a second cluster " +
			"into the first",
		Run:      flow.Do(s.runReserve),
		Spec:     map[string]string{"clusterName": s.cfg.ClusterName},
		Verify:   s.verifyReserve,
		Deadline: wait.ReservedWithin + wait.Overhead,
		Waits:    []flow.Wait{wait.Reserved},
	})
}

func (s *Set) runReserve(ctx context.Context, say flow.Say) (Reservation, error) {
	found, err := claims.Reserve(ctx, s.cfg, s.tools, say)
	if err != nil {
		return Reservation{}, err
	}
	return Reservation{ID: found.ID, By: found.By}, nil
}

func (s *Set) verifyReserve(ctx context.Context, was Reservation) flow.Verdict {
	return claims.VerifyName(ctx, s.cfg, s.tools, was.ID, was.By)
}
