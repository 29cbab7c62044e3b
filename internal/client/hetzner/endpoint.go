package hetzner

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Endpoint is the address of a cluster's control plane that Slipway keeps: a Primary IPv4 that outlives its load
// balancer, and the load balancer that has it.
type Endpoint struct {
	PrimaryIP    int64
	IPv4         netip.Addr
	Location     string // of the Primary IP, and so of every load balancer that is to have it
	Protected    bool   // from deletion
	LoadBalancer int64  // 0: there is none
	Name         string // of the load balancer, by which CAPH adopts it
	// ByCAPH are load balancers that CAPH created for the cluster at other addresses, which no kubeconfig, certificate or
	// server names.
	ByCAPH []int64
}

// EndpointSpec is what a control plane endpoint is to be.
type EndpointSpec struct {
	Cluster, Location, LoadBalancerType string
	Algorithm                           string // "round_robin" or "least_connections"
	Services                            []EndpointService
}

// EndpointService is a TCP port that the load balancer listens on.
type EndpointService struct{ ListenPort, DestinationPort int }

// endpointRole is the value of endpointRoleLabel on the Primary IP and on the load balancer of an endpoint.
const (
	endpointRoleLabel = "slipway-role"
	endpointRole      = "control-plane-endpoint"
)

// EndpointName is the name of the Primary IP and of the load balancer of a cluster's control plane endpoint.
func EndpointName(cluster string) string { return cluster + "-control-plane" }

func endpointSelector(cluster string) string {
	return OwnerLabel + "==" + cluster + "," + endpointRoleLabel + "==" + endpointRole
}

// endpointLabels mark what Slipway creates. None begins with CAPH's prefix: CAPH adopts no load balancer with one.
func endpointLabels(cluster string) map[string]string {
	return map[string]string{OwnerLabel: cluster, endpointRoleLabel: endpointRole}
}

// isEndpoint tells whether labels are those of a cluster's control plane endpoint.
func isEndpoint(labels map[string]string, cluster string) bool {
	return labels[OwnerLabel] == cluster && labels[endpointRoleLabel] == endpointRole
}

// IsEndpointAddress tells the Primary IP of a control plane endpoint from every other resource.
func (r Resource) IsEndpointAddress() bool {
	return r.Kind == KindPrimaryIP && r.labels[endpointRoleLabel] == endpointRole
}

// IsEndpointBalancer tells the load balancer of a control plane endpoint: CAPH adopts it, and does not delete it.
func (r Resource) IsEndpointBalancer() bool {
	return r.Kind == KindLoadBalancer && r.labels[endpointRoleLabel] == endpointRole
}

// FindEndpoint finds a cluster's control plane endpoint by its labels; nil where there is no Primary IP with them. A
// Primary IP of its name without the labels has another owner, and is a *ForeignError. A load balancer of its name
// without them, and a Primary IP that is assigned to something else, are in the cluster's way, and errors.
func FindEndpoint(ctx context.Context, c *hcloud.Client, cluster string) (*Endpoint, error) {
	ip, err := findEndpointIP(ctx, c, cluster)
	if err != nil || ip == nil {
		return nil, err
	}
	lb, byCAPH, err := findEndpointBalancer(ctx, c, cluster, ip)
	if err != nil {
		return nil, err
	}
	address, _ := netip.AddrFromSlice(ip.IP)
	e := &Endpoint{PrimaryIP: ip.ID, IPv4: address.Unmap(), Location: placeOf(ip.Location),
		Protected: ip.Protection.Delete, Name: EndpointName(cluster), ByCAPH: byCAPH}
	if lb != nil {
		e.LoadBalancer, e.Name = lb.ID, lb.Name
	}
	if ip.AssigneeID != 0 && ip.AssigneeID != e.LoadBalancer {
		return nil, fmt.Errorf("primary IP %s (%s) of cluster %s is assigned to %s %d, which is not the "+
			"cluster's load balancer: unassign it (delete the load balancer that has it), or choose another CLUSTER_NAME",
			ip.Name, ip.IP, cluster, ip.AssigneeType, ip.AssigneeID)
	}
	return e, nil
}

func findEndpointIP(ctx context.Context, c *hcloud.Client, cluster string) (*hcloud.PrimaryIP, error) {
	// All: one request also finds one of the same name without the labels.
	all, err := c.PrimaryIP.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the Primary IP of cluster %s: %w", cluster, explain(err))
	}
	var found []*hcloud.PrimaryIP
	var named *hcloud.PrimaryIP
	for _, ip := range all {
		switch {
		case isEndpoint(ip.Labels, cluster) && ip.Type == hcloud.PrimaryIPTypeIPv4:
			found = append(found, ip)
		case ip.Name == EndpointName(cluster):
			named = ip
		}
	}
	switch {
	case len(found) > 1:
		return nil, fmt.Errorf("%d Primary IPv4 addresses carry the labels %s, there must be one: delete those that no "+
			"load balancer has", len(found), endpointSelector(cluster))
	case len(found) == 1:
		return found[0], nil
	case named != nil:
		return nil, &ForeignError{fmt.Sprintf("primary IP %d is called %s, as that of cluster %s would be, and does not "+
			"carry the labels %s, so it is not touched: rename it, or give it the labels if the cluster may have it", named.ID,
			named.Name, cluster, endpointSelector(cluster))}
	}
	return nil, nil
}

// findEndpointBalancer finds the load balancer that has the address of an endpoint's Primary IP, and those that CAPH
// created for the cluster at other addresses.
func findEndpointBalancer(ctx context.Context, c *hcloud.Client, cluster string,
	ip *hcloud.PrimaryIP) (has *hcloud.LoadBalancer, byCAPH []int64, err error) {
	all, err := c.LoadBalancer.All(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("look for the load balancer of cluster %s: %w", cluster, explain(err))
	}
	for _, lb := range all {
		ours, caphs := isEndpoint(lb.Labels, cluster), lb.Labels[clusterLabelPrefix+cluster] == clusterLabelValue
		switch at := lb.PublicNet.IPv4.IP; {
		case at.Equal(ip.IP) && (ours || caphs):
			has = lb
		case ours:
			return nil, nil, fmt.Errorf("load balancer %s (%d) carries the labels %s and has the address %s instead of %s, the "+
				"cluster's Primary IP %s; an address cannot be changed: delete that load balancer, and run again", lb.Name, lb.ID,
				endpointSelector(cluster), at, ip.IP, ip.Name)
		case caphs:
			byCAPH = append(byCAPH, lb.ID)
		case lb.Name == EndpointName(cluster):
			return nil, nil, fmt.Errorf("load balancer %d is called %s, as that of cluster %s would be, and does "+
				"not carry the labels %s, so it is not touched: rename or delete it, or choose another CLUSTER_NAME", lb.ID,
				lb.Name, cluster, endpointSelector(cluster))
		}
	}
	return has, byCAPH, nil
}
