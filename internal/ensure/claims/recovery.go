// Package claims decides which state folder may create a cluster, or recover it: by placement groups at Hetzner that
// reserve its name.
package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// RefuseRecovering refuses while another state folder restores or readopts the cluster, or recovers its quorum.
func RefuseRecovering(ctx context.Context, cfg config.Config, tools platform.Tools, by string) error {
	found, err := hetzner.RestoreClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if err == nil && found != nil && found.By != by {
		err = &RecoveringError{found}
	}
	return err
}

// Recover finds, makes or takes over the claim on recovering the cluster. mine tells whether what another state
// folder has begun is this very recovery.
func Recover(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say,
	mine func(context.Context) (bool, error)) (*hetzner.Reservation, error) {
	by, err := ownership.Identity(tools)
	if err != nil {
		return nil, err
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

// VerifyRecovery verifies the claim on recovering the cluster: no other state folder has it. That no state folder has
// it is no reason to run the step again.
func VerifyRecovery(ctx context.Context, cfg config.Config, tools platform.Tools, by string) flow.Verdict {
	found, err := hetzner.RestoreClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case found != nil && found.By != by:
		return flow.Gone("state folder %s recovers %s", found.By, cfg.ClusterName)
	}
	return flow.Holds()
}

// GiveUpRecovery releases the claim on recovering the cluster, if the state folder of this identity has it.
func GiveUpRecovery(ctx context.Context, cfg config.Config, tools platform.Tools, by string) error {
	found, err := hetzner.RestoreClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if err != nil || found == nil || found.By != by {
		return err
	}
	return found.Release(ctx, tools.Hetzner)
}

// Step is the name of the step that reserves the cluster's name.
const Step = "reserve"

const reservedEvery = 250 * time.Millisecond

// claim tries to get a claim until it has it, or knows that it is another's.
func claim(ctx context.Context, cfg config.Config, say flow.Say, by string,
	try func(context.Context, flow.Say, string) (*hetzner.Reservation, error)) (out *hetzner.Reservation, err error) {
	err = wait.Wait{What: "the reservation of " + cfg.ClusterName, Within: wait.ReservedWithin, Every: reservedEvery,
		Each: wait.ReservedWithin}.Until(ctx, say, func(ctx context.Context) (string, error) {
		out, err = try(ctx, say, by)
		var foreign *hetzner.ForeignError
		switch {
		case errors.Is(err, hetzner.ErrReserved):
			return "another run has just created it", nil
		case errors.Is(err, hetzner.ErrToken), errors.As(err, &foreign):
			return "", wait.Final(err)
		}
		return "", err
	})
	return out, err
}

// hostname is this machine's, for people; empty where it has none.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}
