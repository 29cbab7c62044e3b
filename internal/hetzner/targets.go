package hetzner

import (
	"cmp"
	"context"
	"fmt"
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

// Targets lists the targets of the load balancers that CAPH made for a cluster, by load balancer, port and server.
func Targets(ctx context.Context, c *hcloud.Client, cluster string) ([]Target, error) {
	opts := hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: clusterSelector(cluster)}}
	list, err := c.LoadBalancer.AllWithOpts(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list the load balancers of cluster %s: %w", cluster, explain(err))
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
