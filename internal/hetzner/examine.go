package hetzner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// CanWrite tells whether the token may write. No request of the API only tells, so it asks for the deletion of what cannot
// exist, a placement group with the ID 0: a token for reading alone is refused every method but GET before anything is
// looked up ("token_readonly"), any other gets the answer that there is no such thing. Any other answer is an error.
func CanWrite(ctx context.Context, c *hcloud.Client) (bool, error) {
	request, err := c.NewRequest(ctx, "DELETE", "/placement_groups/0", nil)
	if err != nil {
		return false, err
	}
	_, err = c.Do(request, nil)
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeTokenReadonly, hcloud.ErrorCodeForbidden):
		return false, nil
	case hcloud.IsError(err, hcloud.ErrorCodeNotFound, hcloud.ErrorCodeInvalidInput):
		return true, nil
	case err == nil:
		return false, fmt.Errorf("the deletion of a placement group that cannot exist was answered with success")
	}
	return false, explain(err)
}

// Budget is what is left of the requests that the project may make in an hour.
type Budget struct {
	Limit, Remaining int // 0, 0: the answer does not tell
}

// AskBudget asks by way of the smallest list.
func AskBudget(ctx context.Context, c *hcloud.Client) (Budget, error) {
	_, response, err := c.Location.List(ctx, hcloud.LocationListOpts{})
	if err != nil {
		return Budget{}, explain(err)
	}
	r := response.Meta.Ratelimit
	return Budget{r.Limit, r.Remaining}, nil
}

// Sale is how a server type is sold in a location.
type Sale struct {
	Sold      bool      // the location has it
	Withdrawn time.Time // when it is not sold any more, as announced; zero: nothing is
	Told      bool      // whether InStock is known
	InStock   bool
	Locations []string // that have it
}

// AskSale asks how a server type is sold. A type that does not exist is not sold.
func AskSale(ctx context.Context, c *hcloud.Client, serverType, location string) (Sale, error) {
	t, _, err := c.ServerType.GetByName(ctx, serverType)
	if err != nil {
		return Sale{}, fmt.Errorf("look up server type %s: %w", serverType, explain(err))
	}
	if t == nil {
		return Sale{}, nil
	}
	s := Sale{Locations: soldAt(t)}
	s.Sold = len(s.Locations) == 0 || slices.Contains(s.Locations, location)
	if t.IsDeprecated() {
		s.Withdrawn = t.UnavailableAfter()
	}
	for _, at := range t.Locations {
		if at.Location != nil && at.Location.Name == location {
			s.Told, s.InStock = true, at.Available
			if at.IsDeprecated() {
				s.Withdrawn = at.UnavailableAfter()
			}
		}
	}
	return s, nil
}

// Range is a network of the project.
type Range struct {
	Name   string
	Ours   bool // of the cluster that was asked for
	Prefix netip.Prefix
}

// Ranges lists the project's networks.
func Ranges(ctx context.Context, c *hcloud.Client, cluster string) ([]Range, error) {
	networks, err := c.Network.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the project's networks: %w", explain(err))
	}
	var ranges []Range
	for _, n := range networks {
		if n.IPRange == nil {
			continue
		}
		prefix, err := netip.ParsePrefix(n.IPRange.String())
		if err != nil {
			return nil, fmt.Errorf("read the range of network %s: %w", n.Name, err)
		}
		of, _ := owner(n.Labels)
		ranges = append(ranges, Range{Name: n.Name, Ours: of == cluster, Prefix: prefix})
	}
	return ranges, nil
}

// Taken lists what in the project has a name that the cluster's resources will have, and is not the cluster's.
func Taken(ctx context.Context, c *hcloud.Client, cluster string, networks, placementGroups, firewalls []string) ([]string, error) {
	var taken []string
	note := func(kind Kind, id int64, name string, names []string, labels map[string]string) {
		if of, _ := owner(labels); slices.Contains(names, name) && of != cluster {
			taken = append(taken, Resource{Kind: kind, ID: id, Name: name}.String())
		}
	}
	nets, err := c.Network.All(ctx)
	if err != nil {
		return nil, explain(err)
	}
	for _, n := range nets {
		note(KindNetwork, n.ID, n.Name, networks, n.Labels)
	}
	groups, err := c.PlacementGroup.All(ctx)
	if err != nil {
		return nil, explain(err)
	}
	for _, g := range groups {
		note(KindPlacementGroup, g.ID, g.Name, placementGroups, g.Labels)
	}
	walls, err := c.Firewall.All(ctx)
	if err != nil {
		return nil, explain(err)
	}
	for _, w := range walls {
		note(KindFirewall, w.ID, w.Name, firewalls, w.Labels)
	}
	return taken, nil
}
