package config

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

const (
	// Bounds of serviceCidr, as prefix lengths. kube-apiserver refuses ranges of more than 2^20 addresses. The cluster's
	// DNS has the tenth address of the range.
	widestServices, narrowestServices = 12, 28
	// narrowestNetwork is the narrowest network that Hetzner creates (docs.hetzner.com/networking/networks/faq).
	narrowestNetwork = 24
)

// hetznerGateway is the gateway of the servers' public interfaces: no range may have it in it.
func hetznerGateway() netip.Addr { return netip.AddrFrom4([4]byte{172, 31, 1, 1}) }

// privateRanges are those that a Hetzner network can be in (RFC 1918), and that of the lab.
func privateRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("127.0.0.0/8")}
}

// addressRange is a range of the configuration.
type addressRange struct {
	field, value string
	prefix       netip.Prefix
	ok           bool // nothing is wrong with it so far
}

// Networks checks that the address ranges are wide enough, and do not overlap. The servers are in the network; Pods and
// Services need not be, because nothing routes them there.
func (v *Findings) Networks(c Config) {
	network, ok := v.prefix("networkCidr", c.NetworkCIDR)
	ok = ok && v.network(network)
	servers := addressRange{field: "controlPlaneCidr", value: c.ControlPlaneCIDR}
	pods := addressRange{field: "podCidr", value: c.PodCIDR}
	services := addressRange{field: "serviceCidr", value: c.ServiceCIDR}
	var before []*addressRange
	for _, r := range []*addressRange{&servers, &pods, &services} {
		if r.prefix, r.ok = v.prefix(r.field, r.value); !r.ok {
			continue
		}
		v.apart(r, before)
		before = append(before, r)
	}
	if servers.ok && ok && !inside(servers.prefix, network) {
		v.addPair(servers.field, "networkCidr", servers.value, "is not inside networkCidr "+c.NetworkCIDR, "choose a range of that "+
			"network, or a wider network")
		servers.ok = false
	}
	if b := services.prefix.Bits(); services.ok && (b < widestServices || b > narrowestServices) {
		v.add(services.field, services.value, fmt.Sprintf("is not between a /%d and a /%d", widestServices, narrowestServices),
			"kube-apiserver takes no wider range, and the cluster's DNS has the tenth address: write "+
				servicesLike(services.prefix, before).String()+", for example")
	}
	v.wideEnough(c, servers, pods)
}

// servicesLike is a range of Services with the address of one that is too wide or too narrow, or another one where that
// overlaps others.
func servicesLike(p netip.Prefix, others []*addressRange) netip.Prefix {
	like := netip.PrefixFrom(p.Addr(), min(max(p.Bits(), widestServices), narrowestServices-8)).Masked()
	tries := []netip.Prefix{like, netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("192.168.0.0/20")}
	for _, try := range tries {
		overlaps := func(r *addressRange) bool { return r.field != "serviceCidr" && r.prefix.Overlaps(try) }
		if !slices.ContainsFunc(others, overlaps) {
			return try
		}
	}
	return like
}

// network checks the range of a Hetzner network.
func (v *Findings) network(p netip.Prefix) bool {
	switch {
	case !slices.ContainsFunc(privateRanges(), func(private netip.Prefix) bool { return inside(p, private) }):
		v.add("networkCidr", p, "is no private range", "Hetzner's networks are in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 "+
			"(RFC 1918)")
	case p.Bits() > narrowestNetwork:
		v.add("networkCidr", p, fmt.Sprintf("is narrower than a /%d, the smallest network of Hetzner", narrowestNetwork),
			fmt.Sprintf("write %s", netip.PrefixFrom(p.Addr(), narrowestNetwork).Masked()))
	case p.Contains(hetznerGateway()):
		v.add("networkCidr", p, fmt.Sprintf("has %s in it, the gateway of Hetzner's public network", hetznerGateway()),
			"choose another range")
	default:
		return true
	}
	return false
}

// apart checks that a range overlaps none of others, nor has Hetzner's gateway in it.
func (v *Findings) apart(r *addressRange, others []*addressRange) {
	for _, other := range others {
		if other.ok && r.prefix.Overlaps(other.prefix) {
			v.addPair(r.field, other.field, r.value, fmt.Sprintf("overlaps %s %s", other.field, other.value),
				"give servers, Pods and Services ranges of their own")
		}
	}
	if r.prefix.Contains(hetznerGateway()) {
		v.add(r.field, r.value, fmt.Sprintf("has %s in it, the gateway of Hetzner's public network", hetznerGateway()),
			"choose another range")
		r.ok = false
	}
}

// wideEnough checks that there is an address for every server, and a range of Pods for every node.
func (v *Findings) wideEnough(c Config, servers, pods addressRange) {
	nodes, surge, others := c.ControlPlaneReplicas, 1, "controlPlaneReplicas"
	for _, p := range c.Workers {
		nodes, surge, others = nodes+p.Most(), surge+len(p.Groups()), "workers"
	}
	// Two addresses of a Hetzner subnet are the gateway's and the broadcast's, one is the load balancer's.
	if need := 32 - bitsFor(nodes+surge+3); servers.ok && servers.prefix.Bits() > need {
		v.addPair(servers.field, others, servers.value, fmt.Sprintf("is too small for %d servers, %d more in a "+
			"rollout, the load balancer and the gateway", nodes, surge), fmt.Sprintf("use a /%d or wider", min(need, 25)))
	}
	if need := nodePodBits - bitsFor(nodes+surge); pods.ok && pods.prefix.Bits() > need {
		v.addPair(pods.field, others, pods.value, fmt.Sprintf("is too small for %d nodes and %d more in "+
			"a rollout", nodes, surge), fmt.Sprintf("every node takes a /%d of it: use a /%d or wider", nodePodBits, need))
	}
}

// bitsFor is how many bits count n things.
func bitsFor(n int) int { return bits.Len(uint(max(n, 1) - 1)) }

func inside(child, parent netip.Prefix) bool {
	return child.Bits() >= parent.Bits() && parent.Contains(child.Addr())
}

func (v *Findings) prefix(field, value string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(value)
	switch {
	case err != nil && strings.Contains(value, ","):
		v.add(field, value, "is more than one range", "write one IPv4 range, like 10.10.0.0/16: there is no dual stack here")
	case err != nil || !p.Addr().Is4():
		v.add(field, value, "is not an IPv4 range", "write it like 10.10.0.0/16")
	case p != p.Masked():
		v.add(field, value, "has address bits set behind its prefix", "did you mean "+p.Masked().String()+"?")
	default:
		return p, true
	}
	return netip.Prefix{}, false
}
