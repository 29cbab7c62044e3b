package steps

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
)

// Offer is what Hetzner has of the configured names: what the others of the plan need to know of it.
type Offer = hetzner.Offer

// checkOffer asks Hetzner what only Hetzner can know, before anything is made.
func (b *bootstrapper) checkOffer(ctx context.Context, say flow.Say) (Offer, error) {
	say("asking Hetzner for location %s, server type %s and load balancer type %s", b.cfg.Location, b.cfg.ServerType, b.cfg.LoadBalancerType)
	return hetzner.FindOffer(ctx, b.tools.Hetzner, b.cfg.Location, b.cfg.ServerType, b.cfg.LoadBalancerType)
}

func (b *bootstrapper) offerStands(ctx context.Context, was Offer) flow.Verdict {
	is, err := hetzner.FindOffer(ctx, b.tools.Hetzner, b.cfg.Location, b.cfg.ServerType, b.cfg.LoadBalancerType)
	var unknown *hetzner.Unknown
	switch {
	case errors.As(err, &unknown), errors.Is(err, hetzner.ErrToken):
		return flow.Gone("%v", err) // the step will say so as its own failure
	case err != nil:
		return flow.Unknown(err)
	case is != was:
		return flow.Gone("Hetzner now says %+v", is)
	}
	return flow.Holds()
}
