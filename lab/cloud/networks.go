package cloud

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindNetwork = "network"

// network is a private network. Its range must be in 127.0.0.0/8, which has all addresses of the lab; the real API
// requires RFC 1918 ranges in the same way.
type network struct {
	meta
	Range   netip.Prefix          `json:"range"`
	Subnets []subnet              `json:"subnets"`
	Routes  []schema.NetworkRoute `json:"routes,omitempty"`
	Expose  bool                  `json:"expose,omitempty"`
}

type subnet struct {
	Type  string       `json:"type"` // cloud or server
	Range netip.Prefix `json:"range"`
	Zone  string       `json:"zone"`
}

// gateway is the network's first address: no subnet hands it out.
func (n *network) gateway() netip.Addr { return n.Range.Addr().Next() }

func (c *Cloud) networks() resource[*network] {
	return resource[*network]{
		kind: kindNetwork, path: "networks", all: c.state.Networks,
		view: func(one *network) any { return c.viewNetwork(one) },
		update: func(q *call, one *network) error {
			var change schema.NetworkUpdateRequest
			if err := q.decode(&change); err != nil {
				return err
			}
			if change.ExposeRoutesToVSwitch != nil {
				one.Expose = *change.ExposeRoutesToVSwitch
			}
			return nil
		},
		remove: removeNetwork,
		commands: map[string]func(*call, *network) (any, error){
			"add_subnet":        with(addSubnet),
			"delete_subnet":     with(deleteSubnet),
			"add_route":         with(addRoute),
			"delete_route":      with(deleteRoute),
			"change_ip_range":   with(changeIPRange),
			"change_protection": changeProtection[*network](kindNetwork),
		},
	}
}

func (c *Cloud) viewNetwork(one *network) schema.Network {
	shown := schema.Network{
		ID: one.ID, Name: one.Name, Created: one.Created, IPRange: one.Range.String(),
		Subnets: []schema.NetworkSubnet{}, Routes: orEmpty(one.Routes),
		Servers: []int64{}, LoadBalancers: []int64{},
		Protection: schema.NetworkProtection{Delete: one.Protected},
		Labels:     one.labels(), ExposeRoutesToVSwitch: one.Expose,
	}
	for _, part := range one.Subnets {
		shown.Subnets = append(shown.Subnets, schema.NetworkSubnet{
			Type: part.Type, IPRange: part.Range.String(), NetworkZone: part.Zone, Gateway: one.gateway().String(),
		})
	}
	for _, attached := range ordered(c.state.Servers) {
		if attached.attachment(one.ID) != nil {
			shown.Servers = append(shown.Servers, attached.ID)
		}
	}
	for _, attached := range ordered(c.state.LoadBalancers) {
		if attached.Net != nil && attached.Net.Network == one.ID {
			shown.LoadBalancers = append(shown.LoadBalancers, attached.ID)
		}
	}
	return shown
}

func (c *Cloud) createNetwork(q *call, wanted schema.NetworkCreateRequest) (any, error) {
	whole, err := parseNetworkRange(wanted.IPRange)
	if err != nil {
		return nil, err
	}
	draft := &network{Range: whole, Expose: wanted.ExposeRoutesToVSwitch}
	for _, part := range wanted.Subnets {
		if err := q.extend(draft, part); err != nil {
			return nil, err
		}
	}
	for _, route := range wanted.Routes {
		if err := draft.route(route); err != nil {
			return nil, err
		}
	}
	if draft.meta, err = c.networks().begin(q, wanted.Name, wanted.Labels); err != nil {
		return nil, err
	}
	c.state.Networks[draft.ID] = draft
	return map[string]any{"network": c.viewNetwork(draft)}, nil
}

// removeNetwork detaches servers, as the API says that it does in the background; that a load
// balancer must be detached first is assumed.
func removeNetwork(q *call, one *network) (any, error) {
	for _, attached := range q.state.LoadBalancers {
		if attached.Net != nil && attached.Net.Network == one.ID {
			return nil, refuse("resource_in_use", "load balancer %s is attached to the network", attached.Name)
		}
	}
	delete(q.state.Networks, one.ID)
	for _, attached := range ordered(q.state.Servers) {
		if attached.attachment(one.ID) != nil {
			attached.detach(one.ID)
			q.begin("detach_from_network", on(kindServer, attached.ID))
		}
	}
	return nil, nil
}

func parseNetworkRange(text string) (netip.Prefix, error) {
	whole, err := netip.ParsePrefix(text)
	if err != nil || whole != whole.Masked() || whole.Bits() > 24 {
		return whole, invalid("ip_range", "%q is not a network range of /24 or wider in CIDR form", text)
	}
	if !within(loopback, whole) {
		return whole, invalid("ip_range", "%v is not inside %v: the lab has loopback addresses only", whole,
			loopback)
	}
	return whole, nil
}

// extend adds a subnet; without a range in the request it gets the first free /24.
func (c *Cloud) extend(one *network, wanted schema.NetworkSubnet) error {
	if wanted.Type != "cloud" && wanted.Type != "server" {
		return invalid("type", "%q is no type of subnet that the lab simulates: it is cloud or server", wanted.Type)
	}
	if !slices.Contains(c.zones(), wanted.NetworkZone) {
		return invalid("network_zone", "network zone %q does not exist", wanted.NetworkZone)
	}
	if wanted.IPRange == "" {
		wanted.IPRange = one.freeSubnet()
	}
	part, err := netip.ParsePrefix(wanted.IPRange)
	if err != nil || part != part.Masked() || part.Bits() > 30 {
		return invalid("ip_range", "%q is not a subnet range of /30 or wider in CIDR form", wanted.IPRange)
	}
	if !within(one.Range, part) {
		return invalid("ip_range", "%v is not inside the network's %v", part, one.Range)
	}
	for _, other := range one.Subnets {
		if other.Range.Overlaps(part) {
			return invalid("ip_range", "%v overlaps with the subnet %v", part, other.Range)
		}
	}
	one.Subnets = append(one.Subnets, subnet{Type: wanted.Type, Range: part, Zone: wanted.NetworkZone})
	return nil
}

// freeSubnet is the first /24 that no subnet overlaps; empty if there is none.
func (n *network) freeSubnet() string {
	for at := n.Range.Addr(); n.Range.Contains(at); {
		candidate := netip.PrefixFrom(at, 24)
		if !slices.ContainsFunc(n.Subnets, func(other subnet) bool { return other.Range.Overlaps(candidate) }) {
			return candidate.String()
		}
		bytes := at.As4()
		if bytes[2]++; bytes[2] == 0 {
			if bytes[1]++; bytes[1] == 0 {
				break // past the end of 127.0.0.0/8
			}
		}
		at = netip.AddrFrom4(bytes)
	}
	return ""
}

func addSubnet(q *call, one *network, wanted schema.NetworkSubnet) (any, error) {
	if err := q.extend(one, wanted); err != nil {
		return nil, err
	}
	return q.acted("add_subnet", on(kindNetwork, one.ID)), nil
}

func deleteSubnet(q *call, one *network, wanted schema.NetworkActionDeleteSubnetRequest) (any, error) {
	at := slices.IndexFunc(one.Subnets, func(part subnet) bool { return part.Range.String() == wanted.IPRange })
	if at < 0 {
		return nil, refuse("not_found", "the network has no subnet %q", wanted.IPRange)
	}
	for ip := range q.taken(one.ID) {
		if one.Subnets[at].Range.Contains(ip) {
			return nil, refuse("resource_in_use", "%v of the subnet is in use", ip)
		}
	}
	one.Subnets = slices.Delete(one.Subnets, at, at+1)
	return q.acted("delete_subnet", on(kindNetwork, one.ID)), nil
}

func addRoute(q *call, one *network, wanted schema.NetworkRoute) (any, error) {
	if err := one.route(wanted); err != nil {
		return nil, err
	}
	return q.acted("add_route", on(kindNetwork, one.ID)), nil
}

// route adds a route. Its destination must not overlap with subnets or other routes.
func (n *network) route(wanted schema.NetworkRoute) error {
	destination, err := netip.ParsePrefix(wanted.Destination)
	if err != nil || destination != destination.Masked() {
		return invalid("destination", "%q is not a range in CIDR form", wanted.Destination)
	}
	gateway, err := netip.ParseAddr(wanted.Gateway)
	if err != nil || !n.Range.Contains(gateway) || gateway == n.gateway() {
		return invalid("gateway", "%q is not an address of the network other than its first", wanted.Gateway)
	}
	for _, part := range n.Subnets {
		if part.Range.Overlaps(destination) {
			return invalid("destination", "%v overlaps with the subnet %v", destination, part.Range)
		}
	}
	for _, other := range n.Routes {
		if netip.MustParsePrefix(other.Destination).Overlaps(destination) {
			return invalid("destination", "%v overlaps with the route to %s", destination, other.Destination)
		}
	}
	n.Routes = append(n.Routes, wanted)
	return nil
}

func deleteRoute(q *call, one *network, wanted schema.NetworkRoute) (any, error) {
	at := slices.Index(one.Routes, wanted)
	if at < 0 {
		return nil, refuse("not_found", "the network has no route to %q by %q", wanted.Destination, wanted.Gateway)
	}
	one.Routes = slices.Delete(one.Routes, at, at+1)
	return q.acted("delete_route", on(kindNetwork, one.ID)), nil
}

func changeIPRange(q *call, one *network, wanted schema.NetworkActionChangeIPRangeRequest) (any, error) {
	whole, err := parseNetworkRange(wanted.IPRange)
	if err != nil {
		return nil, err
	}
	if !within(whole, one.Range) {
		return nil, invalid("ip_range", "%v does not contain %v: a network can only be extended", whole, one.Range)
	}
	one.Range = whole
	return q.acted("change_ip_range", on(kindNetwork, one.ID)), nil
}

// orEmpty is the list itself, or an empty one that is not null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
