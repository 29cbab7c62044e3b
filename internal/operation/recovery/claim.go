package recovery

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// AddClaim adds the step claim to the graph of a recovery: work claims it, out of spec. That no state folder has the
// claim is no reason to claim again: the recovery releases it shortly before its end.
func AddClaim(g *flow.Graph, cfg config.Config, tools platform.Tools, doc string, spec any,
	work flow.Work[steps.Reservation]) *flow.Step[steps.Reservation] {
	return flow.Add(g, flow.Task[steps.Reservation]{
		Name: "claim",
		Doc:  doc,
		Run:  work,
		Spec: spec,
		Verify: func(ctx context.Context, was steps.Reservation) flow.Verdict {
			return claims.VerifyRecovery(ctx, cfg, tools.WithDefaults(), was.By)
		},
		Deadline: wait.ReservedWithin + wait.Overhead,
		Waits:    []flow.Wait{{For: "the claim", Within: wait.ReservedWithin}},
	})
}

// AddHandOver adds the step reserve to the graph of a recovery, after its last step. doing names the recovery.
func AddHandOver(g *flow.Graph, cfg config.Config, tools platform.Tools, doing string,
	last ...flow.Node) *flow.Step[steps.Reservation] {
	return flow.Add(g, flow.Task[steps.Reservation]{
		Name: "reserve",
		Doc: "the cluster's name is this state folder's, as after a bootstrap, and the claim on " + doing + " it " +
			"is given up",
		Run: flow.Do(func(ctx context.Context, say flow.Say) (steps.Reservation, error) {
			return HandOver(ctx, cfg, tools.WithDefaults(), say)
		}),
		After:    last,
		Deadline: wait.ReservedWithin + wait.Overhead,
		Waits:    []flow.Wait{wait.Reserved},
	})
}

// HandOver reserves the recovered cluster's name for this state folder, and gives the claim on the recovery up.
func HandOver(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) (steps.Reservation, error) {
	found, err := claims.Reserve(ctx, cfg, tools, say)
	if err != nil {
		return steps.Reservation{}, err
	}
	return Reservation(found), claims.GiveUpRecovery(ctx, cfg, tools, found.By)
}

// Reservation is a claim as the steps record it.
func Reservation(found *hetzner.Reservation) steps.Reservation {
	if found == nil {
		return steps.Reservation{}
	}
	return steps.Reservation{ID: found.ID, By: found.By}
}
