package steps

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/platform"
)

// Offer is what Hetzner has of the configured names.
type Offer struct {
	Location         string `json:"location"`
	NetworkZone      string `json:"networkZone"`
	ServerType       string `json:"serverType"`
	Architecture     string `json:"architecture"` // "amd64" or "arm64"
	LoadBalancerType string `json:"loadBalancerType"`
}

// Preflight adds the step preflight to a graph: Hetzner offers what the configuration asks for.
func (s *Set) Preflight(g *flow.Graph) *flow.Step[Offer] {
	step := newPreflightStep(s)
	return flow.Add(g, "preflight", step.run).
		Doc("the token is good; location, server type and load balancer type exist and go together").
		Spec(s.made.offer).Verify(step.verify).Deadline(s.cfg.PreflightTimeout.D())
}

// preflightStep runs and verifies the step preflight.
type preflightStep struct {
	cfg   config.Config
	tools platform.Tools
}

func newPreflightStep(s *Set) preflightStep {
	return preflightStep{cfg: s.cfg, tools: s.tools}
}

// run asks Hetzner what only Hetzner can know, before anything is made.
func (p preflightStep) run(ctx context.Context, say flow.Say) (Offer, error) {
	say("asking Hetzner for location %s, server type %s and load balancer type %s", p.cfg.Location, p.cfg.ServerType,
		p.cfg.LoadBalancerType)
	is, err := hetzner.FindOffer(ctx, p.tools.Hetzner, p.cfg.Location, p.cfg.ServerType, p.cfg.LoadBalancerType)
	return Offer(is), err
}

func (p preflightStep) verify(ctx context.Context, was Offer) flow.Verdict {
	is, err := hetzner.FindOffer(ctx, p.tools.Hetzner, p.cfg.Location, p.cfg.ServerType, p.cfg.LoadBalancerType)
	var unknown *hetzner.Unknown
	switch {
	case errors.As(err, &unknown), errors.Is(err, hetzner.ErrToken):
		return flow.Gone("%v", err) // the step will say so as its own failure
	case err != nil:
		return flow.Unknown(err)
	case Offer(is) != was:
		return flow.Gone("Hetzner now says %+v", is)
	}
	return flow.Holds()
}
