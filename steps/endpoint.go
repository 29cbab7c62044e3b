package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Endpoint is the control plane endpoint of a cluster.
type Endpoint struct {
	// Kind is config.EndpointPrimaryIP; or config.EndpointLoadBalancer, where CAPH, or the operator's manifest, says what
	// the address is: then everything else is empty.
	Kind         string `json:"kind"`
	IPv4         string `json:"ipv4,omitempty"`
	HostName     string `json:"hostName,omitempty"` // by which the API is addressed; empty: by the address
	PrimaryIP    int64  `json:"primaryIp,omitempty"`
	LoadBalancer string `json:"loadBalancer,omitempty"` // its name, by which CAPH adopts it
}

// rendered is the endpoint as manifests are rendered for it.
func (e Endpoint) rendered() render.Endpoint {
	return render.Endpoint{IP: e.IPv4, HostName: e.HostName, LoadBalancer: e.LoadBalancer}
}

// Endpoint adds the step endpoint to a graph: the control plane's address exists, and a load balancer that has it.
func (s *Set) Endpoint(g *flow.Graph, offer *flow.Step[Placement]) *flow.Step[Endpoint] {
	step := newEndpointStep(s)
	waits, deadline := []flow.Wait{wait.Endpoint(s.cfg)}, s.cfg.LoadBalancerTimeout.D()+wait.Overhead
	if s.cfg.EndpointHostName() != "" {
		waits, deadline = append(waits, wait.EndpointName(s.cfg)), deadline+s.cfg.LoadBalancerTimeout.D()
	}
	return flow.Add(g, flow.Task[Endpoint]{
		Name:     "endpoint",
		Doc:      "the control plane's address is a Primary IP, protected against deletion, and a load balancer has it",
		Run:      flow.With1(step.run, offer),
		Spec:     s.made.endpoint,
		Verify:   step.verify,
		Deadline: deadline,
		Waits:    waits,
	})
}

// endpointStep runs and verifies the step endpoint.
type endpointStep struct {
	cfg     config.Config
	tools   platform.Tools
	sources render.Sources
}

func newEndpointStep(s *Set) endpointStep {
	return endpointStep{cfg: s.cfg, tools: s.tools, sources: s.sources}
}

// run ensures the endpoint. A cluster that exists without one keeps the address that CAPH's load balancer has: the
// endpoint of a cluster is in every certificate and kubeconfig, and never changes.
func (step endpointStep) run(ctx context.Context, say flow.Say, offer Placement) (Endpoint, error) {
	byCAPH := Endpoint{Kind: config.EndpointLoadBalancer}
	spec, err := situation.EndpointSpec(step.cfg, step.sources, offer.NetworkZone, offer.placement())
	if err != nil {
		return Endpoint{}, err
	}
	if spec == nil {
		say("the manifests name the control plane's address, or want no load balancer: none is created")
		return byCAPH, nil
	}
	found, foreign := hetzner.FindEndpoint(ctx, step.tools.Hetzner, step.cfg.ClusterName)
	if foreign != nil && !errors.As(foreign, new(*hetzner.ForeignError)) {
		return Endpoint{}, foreign
	}
	exists, err := situation.ClusterExists(ctx, step.cfg, step.tools)
	if err != nil {
		return Endpoint{}, err
	}
	// What another owner has under these names does not matter to a cluster that has its address by CAPH.
	if foreign != nil && !exists && step.cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer {
		return Endpoint{}, foreign
	}
	switch {
	case found == nil && step.cfg.ControlPlaneEndpoint == config.EndpointLoadBalancer:
		return byCAPH, nil
	case found == nil && exists:
		say("cluster %s exists with the address of CAPH's load balancer, and keeps it", step.cfg.ClusterName)
		return byCAPH, nil
	case found != nil && !exists && step.cfg.ControlPlaneEndpoint == config.EndpointLoadBalancer:
		return Endpoint{}, fmt.Errorf("the project has the address %s of an earlier cluster %s (Primary IP %d), and "+
			"CONTROL_PLANE_ENDPOINT is %s, which cannot have it: set it to %s, or delete the address (destroy)", found.IPv4,
			step.cfg.ClusterName, found.PrimaryIP, config.EndpointLoadBalancer, config.EndpointPrimaryIP)
	}
	e, err := step.ensure(ctx, say, *spec)
	if err != nil {
		return Endpoint{}, err
	}
	out := Endpoint{Kind: config.EndpointPrimaryIP, IPv4: e.IPv4.String(), PrimaryIP: e.PrimaryIP, LoadBalancer: e.Name,
		HostName: step.cfg.EndpointHostName()}
	say("the control plane's address is %s", out.IPv4)
	return out, step.waitName(ctx, say, out)
}

// ensure creates what is missing, again where Hetzner is busy or an answer was lost: what that created is adopted.
func (step endpointStep) ensure(ctx context.Context, say flow.Say,
	spec hetzner.EndpointSpec) (e *hetzner.Endpoint, err error) {
	w := wait.Wait{What: "the control plane endpoint", Within: step.cfg.LoadBalancerTimeout.D(),
		Each: step.cfg.LoadBalancerTimeout.D()}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		var err error
		if e, err = hetzner.EnsureEndpoint(ctx, step.tools.Hetzner, spec, say); err != nil && !hetzner.Passes(err) {
			return "", wait.Final(err)
		}
		return "", err
	})
	return e, err
}

// waitName waits until the host name stands for the address: the operator can create the record only now.
func (step endpointStep) waitName(ctx context.Context, say flow.Say, e Endpoint) error {
	if e.HostName == "" {
		return nil
	}
	lookup := step.tools.LookupHost
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	w := wait.Wait{What: "the host name " + e.HostName, Within: step.cfg.LoadBalancerTimeout.D(), Every: wait.NameEvery}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		addresses, err := lookup(ctx, e.HostName)
		record := fmt.Sprintf("create the DNS record %s A %s", e.HostName, e.IPv4)
		switch {
		case err != nil:
			return fmt.Sprintf("it does not resolve (%v): %s", err, record), nil
		case !slices.Contains(addresses, e.IPv4):
			return fmt.Sprintf("it resolves to %v: %s", addresses, record), nil
		}
		return "", nil
	})
}

// verify asks Hetzner. After the pivot, too: a load balancer that was deleted is created again by the next run.
func (step endpointStep) verify(ctx context.Context, was Endpoint) flow.Verdict {
	if was.Kind != config.EndpointPrimaryIP {
		return flow.Holds()
	}
	found, err := hetzner.FindEndpoint(ctx, step.tools.Hetzner, step.cfg.ClusterName)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case found == nil:
		return flow.Gone("Primary IP %d with the address %s was deleted", was.PrimaryIP, was.IPv4)
	case found.IPv4.String() != was.IPv4:
		return flow.Gone("the Primary IP has the address %s, the cluster %s", found.IPv4, was.IPv4)
	case found.LoadBalancer == 0:
		return flow.Gone("the load balancer at %s was deleted; its address is kept by Primary IP %d", was.IPv4, was.PrimaryIP)
	case !found.Protected:
		return flow.Gone("Primary IP %d is not protected against deletion", was.PrimaryIP)
	}
	return flow.Holds()
}
