package capacity

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Usable tells why servers of an architecture cannot be created: there is no image for them. Empty: they can.
type Usable func(ctx context.Context, architecture string) (why string, err error)

// Instead asks with what else the servers that a control plane still lacks can be created, when the server type of its
// placement is out of stock in a location. First choice is another server type in the same locations, second any
// configured server type in other locations of the network zone. passed tells why the others were not chosen.
//
// A nil choice without an error means that there is none; again, that the server type is in stock again where it is
// missing, so that nothing needs to be changed.
func Instead(ctx context.Context, c *hcloud.Client, cfg config.Config, has render.Placement, missing string,
	usable Usable) (choice *Choice, again bool, passed []string, err error) {
	m, err := askMarket(ctx, c, cfg)
	if err != nil {
		return nil, false, nil, err
	}
	// A network, and so a cluster, does not leave its network zone.
	m.endpoint = has.Location
	// What the control plane has counts, configured or not; its own locations are preferred.
	m.locations = append(slices.Clone(has.Locations), slices.DeleteFunc(slices.Clone(m.locations),
		func(l string) bool { return slices.Contains(has.Locations, l) })...)
	at := slices.IndexFunc(m.types, func(t hetzner.ServerType) bool { return t.Name == has.ServerType })
	if at >= 0 {
		if sale := m.types[at].At(missing); sale.Told && sale.InStock {
			return nil, true, nil, nil
		}
	}
	unusable := map[string]string{}
	var kinds []hetzner.ServerType
	for _, kind := range m.types {
		why, asked := unusable[kind.Architecture]
		if !asked {
			if why, err = usable(ctx, kind.Architecture); err != nil {
				return nil, false, nil, err
			}
			unusable[kind.Architecture] = why
		}
		if why != "" {
			passed = append(passed, fmt.Sprintf("%s cannot be used: %s", kind.Name, why))
			continue
		}
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		if stocked, _ := m.stocked(kind); kind.Name != has.ServerType && holds(stocked, has.Locations) {
			found := m.choice(kind, has.Locations, nil)
			found.Location = has.Location
			return &found, false, passed, nil
		}
	}
	for _, kind := range kinds {
		stocked, out := m.stocked(kind)
		passed = append(passed, out...)
		// Hetzner may report in stock what it has just refused to create.
		stocked = slices.DeleteFunc(stocked, func(l string) bool { return kind.Name == has.ServerType && l == missing })
		if !m.spread && len(stocked) > 1 {
			stocked = stocked[:1]
		}
		if len(stocked) > 0 && !(kind.Name == has.ServerType && slices.Equal(stocked, has.Locations)) {
			found := m.choice(kind, stocked, nil)
			found.Location = has.Location
			return &found, false, passed, nil
		}
	}
	return nil, false, passed, nil
}

// holds tells whether all has each of some words.
func holds(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}
