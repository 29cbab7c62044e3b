// Package capacity chooses the server type and the locations of a control plane among those that are configured, by
// what Hetzner has in stock.
package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Choice is what a control plane is created with.
type Choice struct {
	Location         string // of the load balancer
	NetworkZone      string
	ServerType       string
	Architecture     string // "amd64" or "arm64"
	LoadBalancerType string
	// Locations are those of the servers: one, or with SPREAD=location several of the network zone.
	Locations []string
	// Passed tells of each server type that is preferred to the chosen one why it was not chosen, and of each location.
	Passed []string
}

// Placement is the choice as manifests are rendered for it.
func (c Choice) Placement() render.Placement {
	return render.Placement{ServerType: c.ServerType, Location: c.Location, Locations: c.Locations}
}

// Describe is "server type cpx32 in nbg1".
func (c Choice) Describe() string {
	return fmt.Sprintf("server type %s in %s", c.ServerType, strings.Join(c.Locations, ", "))
}

// Explain is Describe with what was passed over: "server type cpx32 in nbg1 (cx33 is out of stock in nbg1)".
func (c Choice) Explain() string {
	if len(c.Passed) == 0 {
		return c.Describe()
	}
	return c.Describe() + " (" + strings.Join(c.Passed, "; ") + ")"
}

// OutOfStockError says that Hetzner has none of the configured server types in any of the configured locations.
type OutOfStockError struct {
	Passed []string
	Spread bool
	Pool   bool // of a worker pool
}

// Error implements error.
func (e *OutOfStockError) Error() string {
	where := "in any of the configured locations"
	if e.Spread {
		where = "in two of the configured locations (SPREAD=location)"
	}
	settings := "SERVER_TYPE or LOCATION"
	if e.Pool {
		settings = "the pool's serverType or location"
	}
	return fmt.Sprintf("Hetzner has no configured server type in stock %s: %s. No server is created: add another server "+
		"type or location to %s, or run again when one is in stock", where, strings.Join(e.Passed, "; "), settings)
}

// Choose asks Hetzner which of the configured server types and locations a control plane is to be created with: the
// first server type that is in stock in one of the locations, in the first location that has it. A cluster that has
// servers keeps their type and location where they are configured; a control plane endpoint that exists decides where
// the load balancer is. Where only one server type and one location are configured, stock does not matter: CAPH waits
// for it. An *hetzner.Unknown error names what does not exist, an *OutOfStockError that nothing is in stock.
//
// Hetzner reports whether a server type is in stock, and not how many servers there are: those of a control plane and
// the one more of a rolling update may still be too many.
func Choose(ctx context.Context, c *hcloud.Client, cfg config.Config) (Choice, error) {
	m, err := askMarket(ctx, c, cfg)
	if err != nil {
		return Choice{}, err
	}
	if len(m.types) == 1 && len(m.locations) == 1 {
		return m.choice(m.types[0], m.locations, nil), nil
	}
	if m.endpoint, err = endpointLocation(ctx, c, cfg); err != nil {
		return Choice{}, err
	}
	has, err := existing(ctx, c, cfg, func(s hetzner.Server) bool { return s.ControlPlane })
	if err != nil {
		return Choice{}, err
	}
	return m.choose(has)
}

// Again asks whether Hetzner still offers what was chosen, in stock or not; an *hetzner.Unknown error says what it does
// not.
func Again(ctx context.Context, c *hcloud.Client, was Choice) (Choice, error) {
	m, err := askMarket(ctx, c, config.Config{ServerType: was.ServerType, Location: strings.Join(was.Locations, ","),
		LoadBalancerType: was.LoadBalancerType})
	if err != nil {
		return Choice{}, err
	}
	is := m.choice(m.types[0], was.Locations, was.Passed)
	is.Location = was.Location
	return is, nil
}

// market is what Hetzner tells of the configured server types and locations.
type market struct {
	types     []hetzner.ServerType // in the configured order
	locations []string             // in the configured order
	zones     map[string]string    // location → network zone
	balancer  string               // load balancer type
	spread    bool
	endpoint  string // location of the control plane endpoint; empty: there is none
}

func askMarket(ctx context.Context, c *hcloud.Client, cfg config.Config) (market, error) {
	m := market{locations: cfg.Locations(), spread: cfg.Spread == config.SpreadLocation}
	var err error
	if m.zones, err = hetzner.NetworkZones(ctx, c, m.locations); err != nil {
		return m, err
	}
	for _, name := range cfg.ServerTypes() {
		kind, err := hetzner.FindServerType(ctx, c, name)
		if err != nil {
			return m, err
		}
		m.types = append(m.types, kind)
	}
	if err := m.sold(); err != nil {
		return m, err
	}
	balancer, err := hetzner.FindLoadBalancerType(ctx, c, cfg.LoadBalancerType)
	m.balancer = balancer.Name
	return m, err
}

// sold refuses a server type that none of the locations sells, and with SPREAD=location locations of several zones.
func (m market) sold() error {
	for _, kind := range m.types {
		if !slices.ContainsFunc(m.locations, func(l string) bool { return kind.At(l).Sold }) {
			return &hetzner.Unknown{What: "server type", Name: kind.Name, Why: "is not sold in " +
				strings.Join(m.locations, ", ") + "; locations that have it", Known: kind.Locations}
		}
	}
	if m.spread {
		for _, l := range m.locations[1:] {
			if m.zones[l] != m.zones[m.locations[0]] {
				return &hetzner.Unknown{What: "location", Name: l, Why: fmt.Sprintf("is in network zone %s, and %s in %s: "+
					"SPREAD=location needs locations of one network zone, because a network does not leave it", m.zones[l],
					m.locations[0], m.zones[m.locations[0]])}
			}
		}
	}
	return nil
}

// servers are what the control plane of a cluster, or a worker pool, runs on already.
type servers struct {
	kind      string   // of the newest, which has the type that others would be created with
	locations []string // each once
}

// existing are those of a cluster's servers that are wanted.
func existing(ctx context.Context, c *hcloud.Client, cfg config.Config,
	wanted func(hetzner.Server) bool) (servers, error) {
	all, err := hetzner.Servers(ctx, c, cfg.ClusterName)
	if err != nil {
		return servers{}, err
	}
	slices.SortFunc(all, func(a, b hetzner.Server) int { return cmp.Compare(b.ID, a.ID) })
	var out servers
	for _, s := range all {
		if !wanted(s) {
			continue
		}
		out.kind = cmp.Or(out.kind, s.Type)
		if !slices.Contains(out.locations, s.Location) {
			out.locations = append(out.locations, s.Location)
		}
	}
	return out, nil
}

// endpointLocation is where the cluster's Primary IP is; empty: it has none, or none that can be used.
func endpointLocation(ctx context.Context, c *hcloud.Client, cfg config.Config) (string, error) {
	e, err := hetzner.FindEndpoint(ctx, c, cfg.ClusterName)
	if errors.As(err, new(*hetzner.ForeignError)) || err == nil && e == nil {
		return "", nil // the step endpoint says so
	}
	if err != nil {
		return "", err
	}
	return e.Location, nil
}

func (m market) choose(has servers) (Choice, error) {
	at := slices.IndexFunc(m.types, func(t hetzner.ServerType) bool { return t.Name == has.kind })
	keeps := slices.DeleteFunc(slices.Clone(m.locations), func(l string) bool { return !slices.Contains(has.locations, l) })
	if at >= 0 && len(keeps) > 0 {
		return m.choice(m.types[at], keeps, []string{fmt.Sprintf("cluster has servers of type %s in %s", has.kind,
			strings.Join(keeps, " and "))}), nil
	}
	var passed []string
	for _, kind := range m.types {
		stocked, out := m.stocked(kind)
		switch {
		case m.spread && len(stocked) > 1:
			return m.choice(kind, stocked, append(passed, out...)), nil
		case !m.spread && len(stocked) > 0:
			before := out[:min(len(out), slices.Index(m.locations, stocked[0]))]
			return m.choice(kind, stocked[:1], append(passed, before...)), nil
		}
		passed = append(passed, out...)
	}
	return Choice{}, &OutOfStockError{Passed: passed, Spread: m.spread}
}

// stocked are the locations that have a server type in stock, and why each of the others does not count.
func (m market) stocked(kind hetzner.ServerType) (stocked, out []string) {
	for _, l := range m.locations {
		sale := kind.At(l)
		switch {
		case m.endpoint != "" && m.zones[l] != "" && m.zones[m.endpoint] != "" && m.zones[l] != m.zones[m.endpoint]:
			out = append(out, fmt.Sprintf("%s is in another network zone than the cluster's address, which is in %s", l,
				m.endpoint))
		case !sale.Sold:
			out = append(out, fmt.Sprintf("%s is not sold in %s", kind.Name, l))
		case !sale.Withdrawn.IsZero():
			out = append(out, fmt.Sprintf("%s is withdrawn in %s on %s", kind.Name, l, sale.Withdrawn.Format(time.DateOnly)))
		case sale.Told && !sale.InStock:
			out = append(out, fmt.Sprintf("%s is out of stock in %s", kind.Name, l))
		default:
			stocked = append(stocked, l)
		}
	}
	return stocked, out
}

func (m market) choice(kind hetzner.ServerType, locations, passed []string) Choice {
	c := Choice{Location: locations[0], NetworkZone: m.zones[locations[0]], ServerType: kind.Name,
		Architecture: kind.Architecture, LoadBalancerType: m.balancer, Locations: locations, Passed: passed}
	if slices.Contains(m.locations, m.endpoint) {
		c.Location = m.endpoint
	}
	return c
}
