package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Target is a server behind a load balancer of a cluster, at one port.
type Target struct {
	LoadBalancer string `json:"loadBalancer"`
	Server       int64  `json:"server"` // its ID
	Port         int    `json:"port"`   // that the load balancer listens on
	Health       string `json:"health"` // Hetzner's status: healthy, unhealthy or unknown
}

// balancersOf lists the load balancers that CAPH made or adopted for a cluster.
func balancersOf(ctx context.Context, c *hcloud.Client, cluster string) ([]*hcloud.LoadBalancer, error) {
	list, err := c.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{ListOpts: ofCluster(cluster)})
	if err != nil {
		return nil, fmt.Errorf("list the load balancers of cluster %s: %w", cluster, explain(err))
	}
	return list, nil
}

// Targets lists the targets of the load balancers that CAPH made for a cluster, by load balancer, port and server.
func Targets(ctx context.Context, c *hcloud.Client, cluster string) ([]Target, error) {
	list, err := balancersOf(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	found := []Target{}
	for _, lb := range list {
		for _, t := range lb.Targets {
			for _, one := range append(slices.Clone(t.Targets), t) { // those that a selector covers are nested in it
				if one.Server == nil || one.Server.Server == nil {
					continue
				}
				for _, h := range one.HealthStatus {
					found = append(found, Target{LoadBalancer: lb.Name, Server: one.Server.Server.ID, Port: h.ListenPort,
						Health: string(h.Status)})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.LoadBalancer, b.LoadBalancer), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Server, b.Server))
	})
	return found, nil
}

// Untargeted is a load balancer of a cluster's control plane, and the servers that it does not have as targets.
type Untargeted struct {
	LoadBalancer int64
	Name         string
	Servers      []Server
}

// String is "load balancer k8s-control-plane does not have a and b as targets".
func (u Untargeted) String() string {
	return fmt.Sprintf("load balancer %s does not have %s among its targets", u.Name, ServerNames(u.Servers))
}

// FindUntargeted compares the load balancers that CAPH made or adopted for a cluster with the servers that are to be
// behind them. CAPH v1.0 can leave one out.
func FindUntargeted(ctx context.Context, c *hcloud.Client, cluster string, servers []Server) ([]Untargeted, error) {
	if len(servers) == 0 {
		return nil, nil
	}
	list, err := balancersOf(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	var all []Untargeted
	for _, lb := range list {
		one := Untargeted{LoadBalancer: lb.ID, Name: lb.Name}
		for _, s := range servers {
			if !slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return reaches(t, s) }) {
				one.Servers = append(one.Servers, s)
			}
		}
		if len(one.Servers) > 0 {
			all = append(all, one)
		}
	}
	return all, nil
}

// reaches tells whether a target is a server, by itself, by a label or by one of its addresses.
func reaches(t hcloud.LoadBalancerTarget, s Server) bool {
	switch {
	case t.Server != nil && t.Server.Server != nil:
		return t.Server.Server.ID == s.ID
	case t.IP != nil:
		return t.IP.IP == s.Public.String() ||
			slices.ContainsFunc(s.Private, func(a netip.Addr) bool { return t.IP.IP == a.String() })
	}
	return slices.ContainsFunc(t.Targets, func(t hcloud.LoadBalancerTarget) bool { return reaches(t, s) })
}

// AddTargets adds the servers to the load balancer.
func (u Untargeted) AddTargets(ctx context.Context, c *hcloud.Client) error {
	for _, s := range u.Servers {
		opts := hcloud.LoadBalancerAddServerTargetOpts{Server: &hcloud.Server{ID: s.ID},
			UsePrivateIP: hcloud.Ptr(len(s.Private) > 0)}
		action, _, err := c.LoadBalancer.AddServerTarget(ctx, &hcloud.LoadBalancer{ID: u.LoadBalancer}, opts)
		err = finish(ctx, c, err, action)
		if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined, hcloud.ErrorCodeNotFound) {
			return fmt.Errorf("add server %s to load balancer %s: %w", s.Name, u.Name, explain(err))
		}
	}
	return nil
}
