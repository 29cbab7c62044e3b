package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// claimRestore ensures that no other state folder restores the cluster: two people with one backup each, at three in
// the morning, would make two clusters of one name and one set of keys. That the reservation of the cluster is another
// state folder's says nothing here: that one's cluster is lost.
func (r *restorer) claimRestore(ctx context.Context, say flow.Say, _ Lost) (Reservation, error) {
	return claimRecovery(ctx, r.cfg, r.tools, say, r.madeBefore)
}

// madeBefore tells whether the management cluster holds what an earlier run of this restore made, perhaps from another
// state folder, which can be lost, too.
func (r *restorer) madeBefore(ctx context.Context) (bool, error) {
	cluster, err := r.heldBeside(ctx)
	return cluster != nil && r.isRestored(cluster), err
}

// claimRecovery finds, makes or takes over the claim on recovering the cluster. mine tells whether what another state
// folder has begun is this very recovery.
func claimRecovery(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say,
	mine func(context.Context) (bool, error)) (Reservation, error) {
	by, err := ownership.Identity(tools)
	if err != nil {
		return Reservation{}, err
	}
	return claim(ctx, cfg, say, by, func(ctx context.Context, say flow.Say, by string) (*hetzner.Reservation, error) {
		api, claim := tools.Hetzner, hetzner.RestoreClaim(cfg.ClusterName)
		found, err := claim.Find(ctx, api)
		if err != nil || found != nil && found.By == by {
			return found, err
		}
		if found == nil {
			return claim.Reserve(ctx, api, by, hostname())
		}
		switch begun, err := mine(ctx); {
		case err != nil:
			return nil, wait.Final(fmt.Errorf("find out whether the recovery that state folder %s began is this one: %w",
				found.By, err))
		case begun:
			say("taking the recovery over from state folder %s: what it made is there", found.By)
			return found, found.TakeOver(ctx, api, by, hostname())
		}
		return nil, wait.Final(&RecoveringError{found})
	})
}

// verifyClaim holds also where no state folder has the claim: the recovery gives it up shortly before its end.
func (r *restorer) verifyClaim(ctx context.Context, was Reservation) flow.Verdict {
	return verifyClaim(ctx, r.cfg, r.tools, was)
}

func verifyClaim(ctx context.Context, cfg config.Config, tools platform.Tools, was Reservation) flow.Verdict {
	found, err := hetzner.RestoreClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case found != nil && found.By != was.By:
		return flow.Gone("state folder %s recovers %s", found.By, cfg.ClusterName)
	}
	return flow.Holds()
}

// giveUpClaim releases the claim on recovering the cluster, if the state folder of this identity has it.
func giveUpClaim(ctx context.Context, cfg config.Config, tools platform.Tools, by string) error {
	found, err := hetzner.RestoreClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if err != nil || found == nil || found.By != by {
		return err
	}
	return found.Release(ctx, tools.Hetzner)
}

// handOver makes the recovered cluster this state folder's, as a bootstrap would have, and gives the claim up.
func (r *restorer) handOver(ctx context.Context, say flow.Say) (Reservation, error) {
	out, err := newReserveStep(r.Set).run(ctx, say)
	if err != nil {
		return Reservation{}, err
	}
	return out, giveUpClaim(ctx, r.cfg, r.tools, out.By)
}
