package quorum

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/steps"
)

// claimQuorum makes sure that no other state folder recovers the cluster. Two machines that recover the quorum at once
// would choose for themselves which server survives: one would reset the server on which the other has just made the
// new etcd. What another state folder has begun is not taken over, as the snapshot, which may be the last data there
// are, is in that folder.
func (q pauseStep) claimQuorum(ctx context.Context, say flow.Say, _ etcdview.Survey) (steps.Reservation, error) {
	found, err := claims.Recover(ctx, q.cfg, q.tools, say, func(context.Context) (bool, error) { return false, nil })
	return recovery.Reservation(found), err
}

// unclaim gives the claim up, unless another state folder has it.
func (q pauseStep) unclaim(ctx context.Context) error {
	by, err := ownership.Identity(q.tools)
	if err != nil {
		return err
	}
	return claims.GiveUpRecovery(ctx, q.cfg, q.tools, by)
}
