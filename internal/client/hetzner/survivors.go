package hetzner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Survivor is the load balancer that was before a lost cluster's control plane.
type Survivor struct {
	ID       int64
	Name     string
	IPv4     string
	Labelled bool // with the cluster's label: CAPH finds it by that; else only by its name
}

// SurvivingBalancer finds the load balancer that a cluster's API was behind: by CAPH's label, else by its address
// (which may be empty). nil: there is none (any more).
func SurvivingBalancer(ctx context.Context, c *hcloud.Client, cluster, ip string) (*Survivor, error) {
	all, err := c.LoadBalancer.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the load balancer of cluster %s: %w", cluster, explain(err))
	}
	var found []*Survivor
	for _, lb := range all {
		if lb.Labels[clusterLabelPrefix+cluster] == clusterLabelValue {
			found = append(found, &Survivor{ID: lb.ID, Name: lb.Name, IPv4: lb.PublicNet.IPv4.IP.String(), Labelled: true})
		}
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%d load balancers carry the label %s, there must be one: delete those that no server uses",
			len(found), clusterSelector(cluster))
	}
	if len(found) == 1 {
		return found[0], nil
	}
	for _, lb := range all {
		if ip == "" || lb.PublicNet.IPv4.IP.String() != ip {
			continue
		}
		for key := range lb.Labels {
			if other, ok := strings.CutPrefix(key, clusterLabelPrefix); ok {
				return nil, fmt.Errorf("load balancer %s has the address %s, which cluster %s had, and is cluster %s's now "+
					"(label %s): take the label away if that cluster is gone", lb.Name, ip, cluster, other, key)
			}
		}
		return &Survivor{ID: lb.ID, Name: lb.Name, IPv4: ip}, nil
	}
	return nil, nil
}

// PlacementGroups are the names of the placement groups that CAPH made for a cluster. It deletes those that it finds
// and that the cluster does not want.
func PlacementGroups(ctx context.Context, c *hcloud.Client, cluster string) ([]string, error) {
	groups, err := c.PlacementGroup.AllWithOpts(ctx, hcloud.PlacementGroupListOpts{ListOpts: ofCluster(cluster)})
	if err != nil {
		return nil, fmt.Errorf("list the placement groups of cluster %s: %w", cluster, explain(err))
	}
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names, nil
}
