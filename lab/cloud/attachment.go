package cloud

import (
	"fmt"
	"net/netip"
	"slices"
)

// attachment is the address of a server or load balancer in a network.
type attachment struct {
	Network int64        `json:"network"`
	IP      netip.Addr   `json:"ip"`
	Aliases []netip.Addr `json:"aliases,omitempty"`
	MAC     string       `json:"mac,omitempty"`
	Pending bool         `json:"pending,omitempty"` // the attaching action runs: not shown yet
}

// attach finds an address in the network for a resource in the zone: the requested one, the next in the requested
// subnet, or the first free one of any subnet.
func (c *Cloud) attach(id int64, zone, wantedIP, wantedRange string) (*attachment, error) {
	to, ok := c.state.Networks[id]
	if !ok {
		return nil, invalid("network", "network with ID '%d' not found", id)
	}
	parts := slices.DeleteFunc(slices.Clone(to.Subnets), func(part subnet) bool { return part.Zone != zone })
	if wantedRange != "" {
		parts = slices.DeleteFunc(parts, func(part subnet) bool { return part.Range.String() != wantedRange })
	}
	taken := c.taken(id)
	place := &attachment{Network: id, MAC: fmt.Sprintf("86:00:00:%02x:%02x:%02x", c.random.IntN(256), c.random.IntN(256),
		c.random.IntN(256))}
	if wantedIP != "" {
		ip, err := netip.ParseAddr(wantedIP)
		if err != nil {
			return nil, invalid("ip", "%q is not an IP address", wantedIP)
		}
		usable := slices.ContainsFunc(parts,
			func(part subnet) bool { return part.Range.Contains(ip) && ip != part.Range.Addr() })
		if !usable || taken[ip] || ip == to.gateway() {
			return nil, refuse("ip_not_available", "IP %v is not available in the network", ip)
		}
		place.IP = ip
		return place, nil
	}
	for _, part := range parts {
		if ip, ok := firstFree(part.Range, taken, to.gateway()); ok {
			place.IP = ip
			return place, nil
		}
	}
	return nil, refuse("no_subnet_available", "no subnet or IP is available within the network in zone %s", zone)
}

// firstFree is the first address of the range that is neither its first nor last, nor in use.
func firstFree(within netip.Prefix, taken map[netip.Addr]bool, reserved netip.Addr) (netip.Addr, bool) {
	for ip := within.Addr().Next(); within.Contains(ip) && within.Contains(ip.Next()); ip = ip.Next() {
		if !taken[ip] && ip != reserved {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// taken are the network's addresses in use.
func (c *Cloud) taken(network int64) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	note := func(place *attachment) {
		if place != nil && place.Network == network {
			used[place.IP] = true
			for _, alias := range place.Aliases {
				used[alias] = true
			}
		}
	}
	for _, one := range c.state.Servers {
		for i := range one.Nets {
			note(&one.Nets[i])
		}
	}
	for _, one := range c.state.LoadBalancers {
		note(one.Net)
	}
	return used
}
