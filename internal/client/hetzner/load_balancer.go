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
	Ports     []int        // that it listens on, ascending
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
		one := LoadBalancer{ID: lb.ID, Name: lb.Name, Public: lb.PublicNet.Enabled}
		if one.Public {
			one.Addresses = addressesOf(lb.PublicNet.IPv4.IP, lb.PublicNet.IPv6.IP)
		}
		for _, n := range lb.PrivateNet {
			one.Addresses = append(one.Addresses, addressesOf(n.IP)...)
		}
		for _, s := range lb.Services {
			one.Ports = append(one.Ports, s.ListenPort)
		}
		slices.Sort(one.Ports)
		found = append(found, one)
	}
	return found, nil
}
