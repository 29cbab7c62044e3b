package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/claims"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// claimVerifier verifies a claim on a recovery. The claim holds also where no state folder has it: the recovery gives
// it up shortly before its end.
func claimVerifier(cfg config.Config, tools platform.Tools) func(context.Context, Reservation) flow.Verdict {
	return func(ctx context.Context, was Reservation) flow.Verdict {
		return claims.VerifyRecovery(ctx, cfg, tools.WithDefaults(), was.By)
	}
}

// addHandOver adds the step reserve to the graph of a recovery, after its last step. doing names the recovery.
func addHandOver(g *flow.Graph, cfg config.Config, tools platform.Tools, doing string, last ...flow.Node) *flow.Step[Reservation] {
	return flow.Add(g, "reserve", func(ctx context.Context, say flow.Say) (Reservation, error) {
		return handOver(ctx, cfg, tools.WithDefaults(), say)
	}).After(last...).
		Doc("the cluster's name is this state folder's, as after a bootstrap, and the claim on " + doing + " it is given up").
		Deadline(wait.ReservedWithin + wait.Overhead).Waits(wait.Reserved)
}

// handOver reserves the recovered cluster's name for this state folder, and gives the claim on the recovery up.
func handOver(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) (Reservation, error) {
	found, err := claims.Reserve(ctx, cfg, tools, say)
	if err != nil {
		return Reservation{}, err
	}
	return reservation(found), claims.GiveUpRecovery(ctx, cfg, tools, found.By)
}

// reservation is a claim as the steps record it.
func reservation(found *hetzner.Reservation) Reservation {
	if found == nil {
		return Reservation{}
	}
	return Reservation{ID: found.ID, By: found.By}
}
