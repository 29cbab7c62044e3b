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
	waits, deadline := []flow.Wait{wait.Endpoint(s.cfg)}, s.cfg.LoadBalancerTimeout.D()+wait.Overhead
	if s.cfg.EndpointHostName() != "" {
		waits, deadline = append(waits, wait.EndpointName(s.cfg)), deadline+s.cfg.LoadBalancerTimeout.D()
	}
	return flow.Add(g, flow.Task[Endpoint]{
		Name:     "endpoint",
		Doc:      "the control plane's address is a Primary IP, protected against deletion, and a load balancer has it",
		Run:      flow.With1(s.runEndpoint, offer),
		Spec:     map[string]string{"clusterName": s.cfg.ClusterName, "controlPlaneEndpoint": s.cfg.ControlPlaneEndpoint},
		Verify:   s.verifyEndpoint,
		Deadline: deadline,
		Waits:    waits,
	})
}

// runEndpoint ensures the endpoint. A cluster that exists without one keeps the address that CAPH's load balancer has:
// the endpoint of a cluster is in every certificate and kubeconfig, and never changes.
func (s *Set) runEndpoint(ctx context.Context, say flow.Say, offer Placement) (Endpoint, error) {
	byCAPH := Endpoint{Kind: config.EndpointLoadBalancer}
	spec, err := situation.EndpointSpec(s.cfg, s.sources, offer.NetworkZone, offer.placement())
	if err != nil {
		return Endpoint{}, err
	}
	if spec == nil {
		say("the manifests name the control plane's address, or want no load balancer: none is created")
		return byCAPH, nil
	}
	found, foreign := hetzner.FindEndpoint(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if foreign != nil && !errors.As(foreign, new(*hetzner.ForeignError)) {
		return Endpoint{}, foreign
	}
	exists, err := situation.ClusterExists(ctx, s.cfg, s.tools)
	if err != nil {
		return Endpoint{}, err
	}
	// What another owner has under these names does not matter to a cluster that has its address by CAPH.
	if foreign != nil && !exists && s.cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer {
		return Endpoint{}, foreign
	}
	switch {
	case found == nil && s.cfg.ControlPlaneEndpoint == config.EndpointLoadBalancer:
		return byCAPH, nil
	case found == nil && exists:
		say("cluster %s exists with the address of CAPH's load balancer, and keeps it", s.cfg.ClusterName)
		return byCAPH, nil
	case found != nil && !exists && s.cfg.ControlPlaneEndpoint == config.EndpointLoadBalancer:
		return Endpoint{}, fmt.Errorf("the project has the address %s of an earlier cluster %s (Primary IP %d), and "+
			"CONTROL_PLANE_ENDPOINT is %s, which cannot have it: set it to %s, or delete the address (destroy)", found.IPv4,
			s.cfg.ClusterName, found.PrimaryIP, config.EndpointLoadBalancer, config.EndpointPrimaryIP)
	}
	e, err := s.ensureEndpoint(ctx, say, *spec)
	if err != nil {
		return Endpoint{}, err
	}
	out := Endpoint{Kind: config.EndpointPrimaryIP, IPv4: e.IPv4.String(), PrimaryIP: e.PrimaryIP, LoadBalancer: e.Name,
		HostName: s.cfg.EndpointHostName()}
	say("the control plane's address is %s", out.IPv4)
	return out, s.waitHostName(ctx, say, out)
}

// ensureEndpoint creates what is missing, again where Hetzner is busy or an answer was lost: what that created is
// adopted.
func (s *Set) ensureEndpoint(ctx context.Context, say flow.Say,
	spec hetzner.EndpointSpec) (e *hetzner.Endpoint, err error) {
	w := wait.Wait{What: "the control plane endpoint", Within: s.cfg.LoadBalancerTimeout.D(),
		Each: s.cfg.LoadBalancerTimeout.D()}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		var err error
		if e, err = hetzner.EnsureEndpoint(ctx, s.tools.Hetzner, spec, say); err != nil && !hetzner.Passes(err) {
			return "", wait.Final(err)
		}
		return "", err
	})
	return e, err
}

// waitHostName waits until the host name stands for the address: the operator can create the record only now.
func (s *Set) waitHostName(ctx context.Context, say flow.Say, e Endpoint) error {
	if e.HostName == "" {
		return nil
	}
	lookup := s.tools.LookupHost
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	w := wait.Wait{What: "the host name " + e.HostName, Within: s.cfg.LoadBalancerTimeout.D(), Every: wait.NameEvery}
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

// verifyEndpoint asks Hetzner. After the pivot, too: a load balancer that was deleted is created again by the next run.
func (s *Set) verifyEndpoint(ctx context.Context, was Endpoint) flow.Verdict {
	if was.Kind != config.EndpointPrimaryIP {
		return flow.Holds()
	}
	found, err := hetzner.FindEndpoint(ctx, s.tools.Hetzner, s.cfg.ClusterName)
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
