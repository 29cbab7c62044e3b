package situation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// LostEndpointError says that no load balancer of the cluster has the address any more that everything knows its API
// by: kubeconfigs, certificates, the machine configuration of every server. Where no Primary IP keeps the address, it
// cannot be had again: CAPH only creates another load balancer, at another address.
type LostEndpointError struct {
	Cluster string
	Address string
	Now     []hetzner.LoadBalancer // what CAPH has made since
	// PrimaryIP keeps the address: a load balancer can be created with it again; 0: none does.
	PrimaryIP int64
	// Nothing reports that there is no server either: nothing says that this is the cluster's project.
	Nothing bool
}

// Error implements error.
func (e *LostEndpointError) Error() string {
	if e.PrimaryIP != 0 && !e.Nothing {
		return fmt.Sprintf("there is no load balancer with the address %s of cluster %s any more: it was deleted. Primary IP "+
			"%d keeps the address, and the servers keep running: run %s, which creates a load balancer at the same address, "+
			"with the same servers; kubeconfigs and certificates stay as they are", e.Address, e.Cluster, e.PrimaryIP,
			platform.ShellCommand("endpoint"))
	}
	if e.Nothing {
		return fmt.Sprintf("nothing of cluster %s is in the token's project, neither the load balancer with its address %s "+
			"nor a server: the token is of another project, or all of it was deleted. Use the token of the cluster's project; "+
			"where all was deleted, restore creates the cluster again from a backup, and destroy deletes its state", e.Cluster,
			e.Address)
	}
	now := "and none in its place"
	if len(e.Now) > 0 {
		var names []string
		for _, lb := range e.Now {
			names = append(names, DescribeBalancer(lb))
		}
		now = "only " + strings.Join(names, ", ") + ", which CAPH created since and which no kubeconfig, certificate or " +
			"server names"
	}
	return fmt.Sprintf("there is no load balancer with the address %s of cluster %s any more, %s: it was deleted, and "+
		"its address cannot be had again. The servers keep running; kubectl --server https://ADDRESS:6443 reaches "+
		"their API at an address of each. Save what is in the cluster, then destroy it and bootstrap it again "+
		"(docs/launch.md, "+
		"\"The load balancer was deleted\")", e.Address, e.Cluster, now)
}

// DescribeBalancer is "load balancer k8s-kube-apiserver-x2p4q at 203.0.113.9".
func DescribeBalancer(lb hetzner.LoadBalancer) string {
	if len(lb.Addresses) == 0 {
		return "load balancer " + lb.Name
	}
	return "load balancer " + lb.Name + " at " + lb.Addresses[0].String()
}

// CheckEndpoint asks Hetzner whether one of the cluster's load balancers still has the address of its API; a
// *LostEndpointError if not. It has no say where the manifests name an address of their own, or a name, or want no load
// balancer.
func CheckEndpoint(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	host string) error {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	own, _, err := endpointOfTheirOwn(cfg, sources)
	if err != nil || own {
		return err
	}
	balancers, err := hetzner.LoadBalancers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return err
	}
	for _, lb := range balancers {
		if slices.Contains(lb.Addresses, address) {
			return nil
		}
	}
	lost := &LostEndpointError{Cluster: cfg.ClusterName, Address: host, Now: balancers}
	kept, err := hetzner.FindEndpoint(ctx, tools.Hetzner, cfg.ClusterName)
	switch foreign := (*hetzner.ForeignError)(nil); {
	case errors.As(err, &foreign): // then it is not the cluster's
	case err != nil:
		return err
	case kept != nil && kept.IPv4 == address:
		lost.PrimaryIP = kept.PrimaryIP
	}
	if len(balancers) == 0 {
		servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
		if err != nil {
			return err
		}
		lost.Nothing = len(servers) == 0
	}
	return lost
}

// VerifyEndpoint is checkEndpoint as the verdict of a Verify: the step that runs again says what cannot be mended.
func VerifyEndpoint(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	host string) flow.Verdict {
	switch err := CheckEndpoint(ctx, cfg, tools, sources, host); {
	case IsLost(err):
		return flow.Gone("%v", err)
	case err != nil:
		return flow.Unknown(err)
	}
	return flow.Holds()
}

// KnownEndpoints are the addresses, host:port, that the API of a cluster with an endpoint has by something else than
// its own objects, which whoever has the cluster can write: the address of a load balancer, which CheckEndpoint has
// found at Hetzner, the configured host name, or the host that the manifests name.
func KnownEndpoints(cfg config.Config, sources render.Sources, e render.Endpoint, port string) ([]string, error) {
	own, host, err := endpointOfTheirOwn(cfg, sources)
	if err != nil {
		return nil, err
	}
	var known []string
	if _, err := netip.ParseAddr(e.IP); err == nil && !own {
		known = append(known, net.JoinHostPort(e.IP, port))
	}
	for _, name := range []string{cfg.EndpointHostName(), host} {
		if name != "" {
			known = append(known, net.JoinHostPort(strings.ToLower(name), port))
		}
	}
	return known, nil
}

// endpointOfTheirOwn reports whether the manifests set a control plane endpoint other than CAPH's load balancer, and
// the host that they name.
func endpointOfTheirOwn(cfg config.Config, sources render.Sources) (own bool, host string, err error) {
	r, err := render.Manifests(cfg, sources, render.ManifestVariables(sources, "image", "", render.Endpoint{}))
	if err != nil {
		return false, "", err
	}
	for _, o := range r.Now {
		if o.GroupVersionKind() == capi.HetznerClusterKind {
			host = capi.Text(o, "spec", "controlPlaneEndpoint", "host")
			return host != "" || !capi.Truth(o, "spec", "controlPlaneLoadBalancer", "enabled"), host, nil
		}
	}
	return true, "", nil
}

// ExplainSilence explains why a cluster does not answer, where Hetzner knows it; otherwise err stays as it is.
func ExplainSilence(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	cluster *kube.Cluster, err error) error {
	server, parseErr := url.Parse(cluster.Host())
	if parseErr != nil {
		return err
	}
	// What else is wrong at Hetzner does not explain the silence.
	if lost := CheckEndpoint(ctx, cfg, tools, sources, server.Hostname()); IsLost(lost) {
		return fmt.Errorf("%w (%w)", lost, err)
	}
	return err
}

// IsLost reports whether an error says that the cluster's address is lost.
func IsLost(err error) bool {
	return errors.As(err, new(*LostEndpointError))
}
