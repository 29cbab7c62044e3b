package restore

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/steps"
)

// addClaim adds the step claim to a graph.
func (r lostStep) addClaim(g *flow.Graph, lost *flow.Step[Lost]) *flow.Step[steps.Reservation] {
	return flow.Add(g, flow.Task[steps.Reservation]{
		Name:     "claim",
		Doc:      "no other state folder restores this cluster",
		Run:      flow.With1(r.claimRestore, lost),
		Spec:     r.source.Identity(),
		Verify:   recovery.VerifyClaim(r.cfg, r.tools),
		Deadline: wait.ReservedWithin + wait.Overhead,
		Waits:    []flow.Wait{recovery.WaitClaim},
	})
}

// claimRestore ensures that no other state folder restores the cluster: two people with one backup each, at three in
// the morning, would make two clusters of one name and one set of keys. That the reservation of the cluster is another
// state folder's says nothing here: that one's cluster is lost.
func (r lostStep) claimRestore(ctx context.Context, say flow.Say, _ Lost) (steps.Reservation, error) {
	found, err := claims.Recover(ctx, r.cfg, r.tools, say, r.madeBefore)
	return recovery.Reservation(found), err
}

// madeBefore tells whether the management cluster has what an earlier run of this restore made, perhaps from another
// state folder, which can be lost, too.
func (r lostStep) madeBefore(ctx context.Context) (bool, error) {
	cluster, err := r.heldBeside(ctx)
	return cluster != nil && r.isRestored(cluster), err
}
