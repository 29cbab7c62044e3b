package steps

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Placement is what the control plane is created with, of what the configuration allows and Hetzner has in stock.
type Placement struct {
	Location         string `json:"location"` // of the load balancer
	NetworkZone      string `json:"networkZone"`
	ServerType       string `json:"serverType"`
	Architecture     string `json:"architecture"` // "amd64" or "arm64"
	LoadBalancerType string `json:"loadBalancerType"`
	// Locations are those of the servers; empty: Location.
	Locations []string `json:"locations,omitempty"`
	// PassedOver tells why what the configuration prefers was not chosen.
	PassedOver []string `json:"passedOver,omitempty"`
	// Workers are what the worker pools are created with.
	Workers []WorkerOffer `json:"workers,omitempty"`
}

// WorkerOffer is what the servers of a worker pool are created with.
type WorkerOffer struct {
	Pool         string `json:"pool"`
	ServerType   string `json:"serverType"`
	Location     string `json:"location"`
	Architecture string `json:"architecture"`
	// PassedOver tells why what the configuration prefers was not chosen.
	PassedOver []string `json:"passedOver,omitempty"`
}

func workerOffers(choices []pools.Choice) (all []WorkerOffer) {
	for _, c := range choices {
		all = append(all, WorkerOffer(c))
	}
	return all
}

func (o Placement) choices() (all []pools.Choice) {
	for _, w := range o.Workers {
		all = append(all, pools.Choice(w))
	}
	return all
}

// offerSpec is what the offer is chosen from.
func offerSpec(cfg config.Config) any {
	spec := map[string]any{"location": cfg.Location, "serverType": cfg.ServerType,
		"loadBalancerType": cfg.LoadBalancerType}
	for _, p := range cfg.Workers {
		p = cfg.Pool(p)
		spec["worker pool "+p.Name] = p.ServerType + " in " + p.Location
	}
	if cfg.Spread != config.SpreadHost {
		spec["spread"] = cfg.Spread
	}
	return spec
}

// offerOf is a choice, as the journal has it.
func offerOf(c capacity.Choice) Placement {
	o := Placement{Location: c.Location, NetworkZone: c.NetworkZone, ServerType: c.ServerType, Architecture: c.Architecture,
		LoadBalancerType: c.LoadBalancerType, PassedOver: c.Passed}
	if !slices.Equal(c.Locations, []string{c.Location}) {
		o.Locations = c.Locations
	}
	return o
}

// placement is the offer as manifests are rendered for it.
func (o Placement) placement() render.Placement {
	p := render.Placement{ServerType: o.ServerType, Location: o.Location, Locations: o.Locations}
	if len(p.Locations) == 0 {
		p.Locations = []string{o.Location}
	}
	return p
}

// Preflight adds the step preflight to a graph: Hetzner offers what the configuration asks for.
func (s *Set) Preflight(g *flow.Graph) *flow.Step[Placement] {
	return flow.Add(g, flow.Task[Placement]{
		Name: "preflight",
		Doc: "the token is good; location, server type and load balancer type exist, go together and are chosen by " +
			"stock",
		Run:      flow.Do(s.runPreflight),
		Spec:     offerSpec(s.cfg),
		Verify:   s.verifyPreflight,
		Deadline: s.cfg.PreflightTimeout.D(),
	})
}

// runPreflight asks Hetzner what only Hetzner can know, before anything is made.
func (s *Set) runPreflight(ctx context.Context, say flow.Say) (Placement, error) {
	say("asking Hetzner for location %s, server type %s and load balancer type %s", s.cfg.Location, s.cfg.ServerType,
		s.cfg.LoadBalancerType)
	choice, err := capacity.Choose(ctx, s.tools.Hetzner, s.cfg)
	if err == nil && s.cfg.ChoosesPlacement() {
		say("the control plane gets %s", choice.Explain())
	}
	if err != nil {
		return Placement{}, err
	}
	offer := offerOf(choice)
	choices, err := pools.Choose(ctx, s.cfg, s.tools, choice.NetworkZone)
	if err != nil {
		return Placement{}, err
	}
	for _, c := range choices {
		say("worker pool %s gets %s", c.Pool, c.Describe())
	}
	offer.Workers = workerOffers(choices)
	return offer, nil
}

// verifyPreflight asks whether Hetzner still has what was chosen. Stock does not matter: it is for what is created
// next, and the waits for that continue with another server type.
func (s *Set) verifyPreflight(ctx context.Context, was Placement) flow.Verdict {
	is, err := capacity.Again(ctx, s.tools.Hetzner, capacity.Choice{Location: was.Location, ServerType: was.ServerType,
		LoadBalancerType: was.LoadBalancerType, Locations: was.placement().Locations, Passed: was.PassedOver})
	now := offerOf(is)
	if err == nil && len(was.Workers) > 0 {
		var choices []pools.Choice
		choices, err = pools.Again(ctx, s.tools, was.choices())
		now.Workers = workerOffers(choices)
	}
	var unknown *hetzner.Unknown
	switch {
	case errors.As(err, &unknown), errors.Is(err, hetzner.ErrToken):
		return flow.Gone("%v", err) // the step will say so as its own failure
	case err != nil:
		return flow.Unknown(err)
	case !reflect.DeepEqual(now, was):
		return flow.Gone("Hetzner now says %+v", now)
	}
	return flow.Holds()
}
