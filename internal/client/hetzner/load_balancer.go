package hetzner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// LoadBalancer is a load balancer of a cluster's control plane, as far as the cluster's endpoint is compared with it.
type LoadBalancer struct {
	ID        int64
	Name      string
	Addresses []netip.Addr // public and private, the public IPv4 address first
	Public    bool         // it has a public interface
	Type      string       // "lb11"
	Location  string       // "nbg1"
	Services  []BalancerService
}

// Ports are those that it listens on, ascending.
func (lb LoadBalancer) Ports() (ports []int) {
	for _, s := range lb.Services {
		ports = append(ports, s.ListenPort)
	}
	slices.Sort(ports)
	return ports
}

// BalancerService is a port that a load balancer listens on, as CAPH configures it.
type BalancerService struct {
	Protocol                    string // "tcp", "http" or "https"
	ListenPort, DestinationPort int
}

// LoadBalancers lists the load balancers of a cluster's control plane: those that CAPH created or adopted, and that of
// the control plane endpoint, which CAPH may not have adopted yet.
func LoadBalancers(ctx context.Context, c *hcloud.Client, cluster string) ([]LoadBalancer, error) {
	list, err := c.LoadBalancer.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the load balancers of cluster %s: %w", cluster, explain(err))
	}
	var found []LoadBalancer
	for _, lb := range list {
		if lb.Labels[clusterLabelPrefix+cluster] != clusterLabelValue && !isEndpoint(lb.Labels, cluster) {
			continue
		}
		found = append(found, loadBalancer(lb))
	}
	return found, nil
}

// LoadBalancerByID is one load balancer.
func LoadBalancerByID(ctx context.Context, c *hcloud.Client, id int64) (LoadBalancer, error) {
	lb, _, err := c.LoadBalancer.GetByID(ctx, id)
	switch {
	case err != nil:
		return LoadBalancer{}, fmt.Errorf("get load balancer %d: %w", id, explain(err))
	case lb == nil:
		return LoadBalancer{}, fmt.Errorf("get load balancer %d: it does not exist", id)
	}
	return loadBalancer(lb), nil
}

func loadBalancer(lb *hcloud.LoadBalancer) LoadBalancer {
	one := LoadBalancer{ID: lb.ID, Name: lb.Name, Public: lb.PublicNet.Enabled, Location: placeOf(lb.Location)}
	if lb.LoadBalancerType != nil {
		one.Type = lb.LoadBalancerType.Name
	}
	if one.Public {
		one.Addresses = addressesOf(lb.PublicNet.IPv4.IP, lb.PublicNet.IPv6.IP)
	}
	for _, n := range lb.PrivateNet {
		one.Addresses = append(one.Addresses, addressesOf(n.IP)...)
	}
	for _, s := range lb.Services {
		one.Services = append(one.Services, BalancerService{string(s.Protocol), s.ListenPort, s.DestinationPort})
	}
	return one
}
