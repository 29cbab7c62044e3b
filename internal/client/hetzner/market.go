package hetzner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Unknown is a name that Hetzner does not know, or does not offer where it is wanted.
type Unknown struct {
	What  string // "server type"
	Name  string
	Why   string
	Known []string // what there is instead
}

// Error implements error.
func (e *Unknown) Error() string {
	s := fmt.Sprintf("%s %q %s", e.What, e.Name, e.Why)
	if len(e.Known) > 0 {
		s += ": choose one of " + strings.Join(e.Known, ", ")
	}
	return s
}

// unknown lists what there is in place of a name; that this fails too is no reason to hide the first finding.
func unknown[T any](ctx context.Context, what, name string, all func(context.Context) ([]T, error),
	nameOf func(T) string) error {
	e := &Unknown{What: what, Name: name, Why: "does not exist at Hetzner"}
	if list, err := all(ctx); err == nil {
		for _, item := range list {
			e.Known = append(e.Known, nameOf(item))
		}
		slices.Sort(e.Known)
	}
	return e
}

// NetworkZones are the network zones of some locations, by location; an *Unknown error names a location that does not
// exist.
func NetworkZones(ctx context.Context, c *hcloud.Client, locations []string) (map[string]string, error) {
	all, err := c.Location.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the locations: %w", explain(err))
	}
	zones, names := map[string]string{}, []string{}
	for _, l := range all {
		zones[l.Name], names = string(l.NetworkZone), append(names, l.Name)
	}
	for _, wanted := range locations {
		if _, exists := zones[wanted]; !exists {
			slices.Sort(names)
			return nil, &Unknown{What: "location", Name: wanted, Why: "does not exist at Hetzner", Known: names}
		}
	}
	return zones, nil
}

// ServerType is a server type and how each location sells it.
type ServerType struct {
	Name         string
	Architecture string   // "amd64" or "arm64"
	Locations    []string // that sell it; none: its prices do not say

	withdrawn time.Time
	at        map[string]Sale
}

// Sale is how a server type is sold in a location.
type Sale struct {
	Sold      bool      // the location has it
	Withdrawn time.Time // when it is not sold any more, as announced; zero: nothing is
	Told      bool      // whether InStock is known
	InStock   bool
}

// FindServerType asks for a server type; an *Unknown error where it does not exist.
func FindServerType(ctx context.Context, c *hcloud.Client, name string) (ServerType, error) {
	t, _, err := c.ServerType.GetByName(ctx, name)
	if err != nil {
		return ServerType{}, fmt.Errorf("look up server type %s: %w", name, explain(err))
	}
	if t == nil {
		return ServerType{}, unknown(ctx, "server type", name, c.ServerType.All,
			func(t *hcloud.ServerType) string { return t.Name })
	}
	out := ServerType{Name: t.Name, Architecture: Architecture(t.Architecture), Locations: soldAt(t), at: map[string]Sale{}}
	if t.IsDeprecated() {
		out.withdrawn = t.UnavailableAfter()
	}
	for _, l := range t.Locations {
		if l.Location == nil {
			continue
		}
		sale := Sale{Told: true, InStock: l.Available}
		if l.IsDeprecated() {
			sale.Withdrawn = l.UnavailableAfter()
		}
		out.at[l.Location.Name] = sale
	}
	return out, nil
}

// At is how a location sells the server type.
func (t ServerType) At(location string) Sale {
	s := t.at[location]
	s.Sold = len(t.Locations) == 0 || slices.Contains(t.Locations, location)
	if s.Withdrawn.IsZero() {
		s.Withdrawn = t.withdrawn
	}
	return s
}

// soldAt lists the locations that sell a server type, as its prices tell.
func soldAt(t *hcloud.ServerType) []string {
	var names []string
	for _, p := range t.Pricings {
		if p.Location != nil {
			names = append(names, p.Location.Name)
		}
	}
	slices.Sort(names)
	return names
}

// LoadBalancerType is what load balancers of a type can do.
type LoadBalancerType struct {
	Name              string
	Targets, Services int       // the most of each
	Withdrawn         time.Time // when it is not sold any more, as announced; zero: nothing is
}

// FindLoadBalancerType asks for a load balancer type; an *Unknown error where it does not exist.
func FindLoadBalancerType(ctx context.Context, c *hcloud.Client, name string) (LoadBalancerType, error) {
	t, _, err := c.LoadBalancerType.GetByName(ctx, name)
	if err != nil {
		return LoadBalancerType{}, fmt.Errorf("look up load balancer type %s: %w", name, explain(err))
	}
	if t == nil {
		return LoadBalancerType{}, unknown(ctx, "load balancer type", name, c.LoadBalancerType.All,
			func(t *hcloud.LoadBalancerType) string { return t.Name })
	}
	b := LoadBalancerType{Name: t.Name, Targets: t.MaxTargets, Services: t.MaxServices}
	if t.IsDeprecated() {
		b.Withdrawn = t.UnavailableAfter()
	}
	return b, nil
}
