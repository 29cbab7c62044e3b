package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// EnsureEndpoint finds or creates a cluster's control plane endpoint: the Primary IP, protected against deletion, and
// the load balancer that has it. A load balancer that was deleted is created again with the same address, in the
// cluster's network, with its control plane servers as targets. say is told of what is created.
func EnsureEndpoint(ctx context.Context, c *hcloud.Client, spec EndpointSpec,
	say func(format string, args ...any)) (*Endpoint, error) {
	e, err := FindEndpoint(ctx, c, spec.Cluster)
	if err != nil {
		return nil, err
	}
	if e == nil {
		if e, err = createEndpointIP(ctx, c, spec); err != nil {
			return nil, err
		}
		say("created Primary IP %s with the address %s", EndpointName(spec.Cluster), e.IPv4)
	}
	if !e.Protected {
		if err := protectEndpointIP(ctx, c, e.PrimaryIP, true); err != nil {
			return nil, err
		}
		e.Protected = true
	}
	if e.LoadBalancer != 0 {
		return e, nil
	}
	if e.Location != spec.Location {
		return nil, fmt.Errorf("primary IP %s of cluster %s is in location %s, the load balancer that is to have it in %s: "+
			"an address cannot leave its location; set LOCATION to %s, or delete the Primary IP (its protection first) to "+
			"get another address", EndpointName(spec.Cluster), spec.Cluster, e.Location, spec.Location, e.Location)
	}
	if err := deleteThoseByCAPH(ctx, c, e, say); err != nil {
		return nil, err
	}
	if e.LoadBalancer, err = createEndpointBalancer(ctx, c, spec, e); err != nil {
		return nil, err
	}
	say("created load balancer %s at %s", e.Name, e.IPv4)
	return e, addEndpointTargets(ctx, c, spec.Cluster, e, say)
}

func createEndpointIP(ctx context.Context, c *hcloud.Client, spec EndpointSpec) (*Endpoint, error) {
	created, _, err := c.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
		Name: EndpointName(spec.Cluster), Type: hcloud.PrimaryIPTypeIPv4, Location: spec.Location,
		AutoDelete: hcloud.Ptr(false), Labels: endpointLabels(spec.Cluster),
	})
	if err != nil {
		return nil, fmt.Errorf("create Primary IP %s: %w", EndpointName(spec.Cluster), explain(err))
	}
	address, _ := netip.AddrFromSlice(created.PrimaryIP.IP)
	return &Endpoint{PrimaryIP: created.PrimaryIP.ID, IPv4: address.Unmap(), Location: spec.Location,
		Name: EndpointName(spec.Cluster)}, nil
}

// protectEndpointIP protects a Primary IP against deletion, or takes the protection away.
func protectEndpointIP(ctx context.Context, c *hcloud.Client, id int64, protect bool) error {
	action, _, err := c.PrimaryIP.ChangeProtection(ctx, hcloud.PrimaryIPChangeProtectionOpts{ID: id, Delete: protect})
	if err = finish(ctx, c, err, action); err != nil {
		return fmt.Errorf("set the protection of Primary IP %d against deletion to %t: %w", id, protect, explain(err))
	}
	return nil
}

// deleteThoseByCAPH deletes what CAPH created before the endpoint's load balancer was there: with two of them CAPH
// reconciles neither.
func deleteThoseByCAPH(ctx context.Context, c *hcloud.Client, e *Endpoint,
	say func(format string, args ...any)) error {
	for _, id := range e.ByCAPH {
		say("deleting load balancer %d: CAPH created it at an address that no kubeconfig, certificate or server names", id)
		action, err := deleteLoadBalancer(ctx, c, id)
		if action != nil {
			err = finish(ctx, c, err, action)
		}
		if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			return fmt.Errorf("delete load balancer %d, which CAPH created in the place of the one at %s: %w", id, e.IPv4,
				explain(err))
		}
	}
	e.ByCAPH = nil
	return nil
}

// endpointHealthCheck looks at a server every 3 seconds, in place of Hetzner's 15: a server that begins to answer gets
// connections after a second or two, and one that ends gets none after 9 seconds instead of 45. CAPH, which adopts the
// load balancer, compares services by their port alone.
func endpointHealthCheck(port int) *hcloud.LoadBalancerCreateOptsServiceHealthCheck {
	return &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: hcloud.Ptr(port),
		Interval: hcloud.Ptr(3 * time.Second), Timeout: hcloud.Ptr(3 * time.Second), Retries: hcloud.Ptr(3),
	}
}

func createEndpointBalancer(ctx context.Context, c *hcloud.Client, spec EndpointSpec, e *Endpoint) (int64, error) {
	opts := hcloud.LoadBalancerCreateOpts{
		Name: e.Name, LoadBalancerType: &hcloud.LoadBalancerType{Name: spec.LoadBalancerType},
		Location: &hcloud.Location{Name: spec.Location}, Labels: endpointLabels(spec.Cluster),
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmType(spec.Algorithm)},
		PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: &hcloud.PrimaryIP{ID: e.PrimaryIP}},
	}
	for _, s := range spec.Services {
		opts.Services = append(opts.Services, hcloud.LoadBalancerCreateOptsService{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(s.ListenPort),
			DestinationPort: hcloud.Ptr(s.DestinationPort), Proxyprotocol: hcloud.Ptr(false),
			HealthCheck: endpointHealthCheck(s.DestinationPort)})
	}
	network, err := NetworkID(ctx, c, spec.Cluster)
	if err != nil {
		return 0, err
	}
	if network != 0 {
		opts.Network = &hcloud.Network{ID: network}
	}
	created, _, err := c.LoadBalancer.Create(ctx, opts)
	if err = finish(ctx, c, err, created.Action); err != nil {
		return 0, fmt.Errorf("create load balancer %s with Primary IP %d (%s): %w", e.Name, e.PrimaryIP, e.IPv4, explain(err))
	}
	if at := created.LoadBalancer.PublicNet.IPv4.IP; at.String() != e.IPv4.String() {
		_, err := deleteLoadBalancer(ctx, c, created.LoadBalancer.ID)
		return 0, errors.Join(fmt.Errorf("load balancer %s was created with the address %s instead of %s, its Primary IP: "+
			"the Hetzner API at this address is older than October 2026; use CONTROL_PLANE_ENDPOINT=load-balancer", e.Name, at,
			e.IPv4), err)
	}
	return created.LoadBalancer.ID, nil
}

// addEndpointTargets adds the control plane servers that exist: CAPH does it too, and only some minutes later.
func addEndpointTargets(ctx context.Context, c *hcloud.Client, cluster string, e *Endpoint,
	say func(format string, args ...any)) error {
	servers, err := Servers(ctx, c, cluster)
	if err != nil {
		return err
	}
	all := Untargeted{LoadBalancer: e.LoadBalancer, Name: e.Name,
		Servers: slices.DeleteFunc(servers, func(s Server) bool { return !s.ControlPlane })}
	if err := all.AddTargets(ctx, c); err != nil {
		return err
	}
	if n := len(all.Servers); n > 0 {
		say("load balancer %s has the %d control plane servers as targets", e.Name, n)
	}
	return nil
}
