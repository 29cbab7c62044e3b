package cloud

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindPrimaryIP = "primary_ip"

// primaryIP is a public address that can outlive its server or load balancer.
type primaryIP struct {
	meta
	Type         string            `json:"type"`                   // ipv4 or ipv6
	Range        netip.Prefix      `json:"range"`                  // a /32, or an IPv6 /64
	Assignee     int64             `json:"assignee,omitempty"`     // ID of the server
	LoadBalancer int64             `json:"loadBalancer,omitempty"` // ID of the load balancer that has it instead
	AutoDelete   bool              `json:"autoDelete"`
	Location     string            `json:"location"`
	DNS          map[string]string `json:"dns,omitempty"` // reverse names by address
}

// primaryIPView is schema.PrimaryIP with the datacenter, which the API had until 2026-07-01.
type primaryIPView struct {
	schema.PrimaryIP
	Datacenter *datacenterView `json:"datacenter,omitempty"`
}

func (c *Cloud) primaryIPs() resource[*primaryIP] {
	return resource[*primaryIP]{
		kind: kindPrimaryIP, path: "primary_ips", all: c.state.PrimaryIPs,
		view:    func(one *primaryIP) any { return c.viewPrimaryIP(one) },
		filters: map[string]func(*primaryIP) string{"ip": (*primaryIP).ip},
		update: func(q *call, one *primaryIP) error {
			var change schema.PrimaryIPUpdateRequest
			if err := q.decode(&change); err != nil {
				return err
			}
			if change.AutoDelete != nil {
				one.AutoDelete = *change.AutoDelete
			}
			return nil
		},
		remove: func(q *call, one *primaryIP) (any, error) {
			if kind, id := one.assignee(); id != 0 {
				code := "resource_in_use"
				if q.since(APINovember2026) {
					code = "must_be_unassigned"
				}
				return nil, refuse(code, "the primary IP is assigned to %s %d", kind, id)
			}
			delete(q.state.PrimaryIPs, one.ID)
			return nil, nil
		},
		commands: map[string]func(*call, *primaryIP) (any, error){
			"assign":            with(assignPrimaryIP),
			"unassign":          unassignPrimaryIP,
			"change_dns_ptr":    changePrimaryIPName,
			"change_protection": changeProtection[*primaryIP](kindPrimaryIP),
		},
	}
}

// assignee is what has the address: the API's type of it and its ID, 0 where nothing has it.
func (p *primaryIP) assignee() (kind string, id int64) {
	if p.LoadBalancer != 0 {
		return kindLoadBalancer, p.LoadBalancer
	}
	return kindServer, p.Assignee
}

// ip is the address as the API shows it: of an IPv6 range its first.
func (p *primaryIP) ip() string { return p.Range.Addr().String() }

// taken tells whether a server or a load balancer has the address.
func (p *primaryIP) taken() bool { return p.Assignee != 0 || p.LoadBalancer != 0 }

// reverse is the reverse name of the IPv4 address; Hetzner's own unless one was set.
func (p *primaryIP) reverse() string {
	return orElse(p.DNS[p.ip()], "static."+reversed(p.Range.Addr())+".clients.your-server.de")
}

// reversed writes an IPv4 address as its reverse zone does.
func reversed(ip netip.Addr) string {
	bytes := ip.As4()
	return fmt.Sprintf("%d.%d.%d.%d", bytes[3], bytes[2], bytes[1], bytes[0])
}

func (c *Cloud) viewPrimaryIP(one *primaryIP) primaryIPView {
	shown := primaryIPView{
		PrimaryIP: schema.PrimaryIP{
			ID: one.ID, IP: one.ip(), Labels: one.labels(), Name: one.Name, Type: one.Type,
			Protection: schema.PrimaryIPProtection{Delete: one.Protected},
			DNSPtr:     []schema.PrimaryIPDNSPTR{}, AutoDelete: one.AutoDelete,
			Created: one.Created, Location: c.locationNamed(one.Location).view,
		},
		Datacenter: c.viewDatacenter(one.Location),
	}
	kind, id := one.assignee()
	if shown.AssigneeType = kind; id != 0 {
		shown.AssigneeID = &id
	}
	if one.Type == "ipv4" {
		shown.DNSPtr = append(shown.DNSPtr, schema.PrimaryIPDNSPTR{IP: one.ip(), DNSPtr: one.reverse()})
		return shown
	}
	for _, ip := range slices.Sorted(maps.Keys(one.DNS)) {
		shown.DNSPtr = append(shown.DNSPtr, schema.PrimaryIPDNSPTR{IP: ip, DNSPtr: one.DNS[ip]})
	}
	return shown
}

// primaryIPRequest is schema.PrimaryIPCreateRequest with what clients older than 2026 send.
type primaryIPRequest struct {
	schema.PrimaryIPCreateRequest
	Datacenter string `json:"datacenter"`
}

func (c *Cloud) createPrimaryIP(q *call, wanted primaryIPRequest) (any, error) {
	var assignee *server
	where := c.placeNamed(wanted.Location, wanted.Datacenter)
	if wanted.AssigneeID != nil {
		if assignee = c.state.Servers[*wanted.AssigneeID]; assignee == nil {
			return nil, invalid("assignee_id", "server with ID '%d' not found", *wanted.AssigneeID)
		}
		if err := c.checkAssign(assignee, wanted.Type); err != nil {
			return nil, err
		}
		where = c.locationNamed(assignee.Location)
	}
	if where == nil {
		return nil, invalid("location", "location %q not found", wanted.Location+wanted.Datacenter)
	}
	if wanted.Type != "ipv4" && wanted.Type != "ipv6" {
		return nil, invalid("type", "%q is not ipv4 or ipv6", wanted.Type)
	}
	if err := c.primaryIPs().checkName(wanted.Name); err != nil {
		return nil, err
	}
	made, err := c.newPrimaryIP(wanted.Type, where.Name)
	if err != nil {
		return nil, err
	}
	if made.meta, err = c.primaryIPs().begin(q, wanted.Name, wanted.Labels); err != nil {
		return nil, err
	}
	made.AutoDelete = wanted.AutoDelete != nil && *wanted.AutoDelete
	c.state.PrimaryIPs[made.ID] = made
	reply := map[string]any{"primary_ip": c.viewPrimaryIP(made)}
	if assignee != nil {
		made.Assignee = assignee.ID
		reply["primary_ip"] = c.viewPrimaryIP(made)
		reply["action"] = q.begin("create_primary_ip", on(kindPrimaryIP, made.ID), on(kindServer, assignee.ID)).view()
	}
	return reply, nil
}

// newPrimaryIP takes a free address out of the pool; the record has no meta yet.
func (c *Cloud) newPrimaryIP(version, where string) (*primaryIP, error) {
	used := map[netip.Addr]bool{}
	for _, other := range c.state.PrimaryIPs {
		used[other.Range.Addr()] = true
	}
	made := &primaryIP{Type: version, Location: where}
	if version == "ipv4" {
		ip, ok := firstFree(c.config.PublicServers, used, netip.Addr{})
		if !ok {
			return nil, refuse("resource_limit_exceeded", "the lab's pool of public IPv4 addresses %v is used up",
				c.config.PublicServers)
		}
		made.Range = netip.PrefixFrom(ip, 32)
		return made, nil
	}
	bytes := c.config.PublicIPv6.Addr().As16()
	for number := 1; number < 1<<8; number++ {
		bytes[7] = byte(number)
		if ip := netip.AddrFrom16(bytes); !used[ip] {
			made.Range = netip.PrefixFrom(ip, 64)
			return made, nil
		}
	}
	return nil, refuse("resource_limit_exceeded", "the lab's pool of IPv6 ranges is used up")
}

// addressOf is the server's primary IP of the version; nil if it has none.
func (c *Cloud) addressOf(id int64, version string) *primaryIP {
	for _, one := range c.state.PrimaryIPs {
		if one.Assignee == id && one.Type == version {
			return one
		}
	}
	return nil
}

// checkAssign refuses a server that cannot take another address of the version now.
func (c *Cloud) checkAssign(to *server, version string) error {
	if c.addressOf(to.ID, version) != nil {
		return refuse("server_has_"+version, "the server already has an %s address", version)
	}
	if to.Status != statusOff {
		return refuse("server_not_stopped", "the server must be stopped to change its primary IPs")
	}
	return nil
}

func assignPrimaryIP(q *call, one *primaryIP, wanted schema.PrimaryIPActionAssignRequest) (any, error) {
	to := q.state.Servers[wanted.AssigneeID]
	switch {
	case to == nil:
		return nil, invalid("assignee_id", "server with ID '%d' not found", wanted.AssigneeID)
	case one.taken():
		kind, id := one.assignee()
		return nil, refuse("primary_ip_already_assigned", "the primary IP is assigned to %s %d", kind, id)
	case to.Location != one.Location:
		return nil, refuse("primary_ip_datacenter_mismatch", "the primary IP is in %s, the server in %s", one.Location,
			to.Location)
	}
	if err := q.checkAssign(to, one.Type); err != nil {
		return nil, err
	}
	one.Assignee = to.ID
	return q.acted("assign_primary_ip", on(kindPrimaryIP, one.ID), on(kindServer, to.ID)), nil
}

func unassignPrimaryIP(q *call, one *primaryIP) (any, error) {
	from := q.state.Servers[one.Assignee]
	if one.LoadBalancer != 0 {
		return nil, refuse("primary_ip_assigned", "a load balancer keeps its primary IP for as long as it exists")
	}
	if from == nil {
		return nil, invalid("assignee_id", "the primary IP is not assigned")
	}
	if from.Status != statusOff {
		return nil, refuse("server_not_stopped", "the server must be stopped to change its primary IPs")
	}
	one.Assignee = 0
	return q.acted("unassign_primary_ip", on(kindPrimaryIP, one.ID), on(kindServer, from.ID)), nil
}

func changePrimaryIPName(q *call, one *primaryIP) (any, error) {
	if err := q.changeDNS(one); err != nil {
		return nil, err
	}
	return q.acted("change_dns_ptr", on(kindPrimaryIP, one.ID)), nil
}

// changeDNS sets or resets a reverse name of the address.
func (q *call) changeDNS(candidates ...*primaryIP) error {
	var wanted schema.PrimaryIPActionChangeDNSPtrRequest
	if err := q.decode(&wanted); err != nil {
		return err
	}
	ip, err := netip.ParseAddr(wanted.IP)
	at := slices.IndexFunc(candidates, func(one *primaryIP) bool { return one != nil && one.Range.Contains(ip) })
	if err != nil || at < 0 {
		return invalid("ip", "%q is not an address of the resource", wanted.IP)
	}
	one := candidates[at]
	if one.DNS == nil {
		one.DNS = map[string]string{}
	}
	if wanted.DNSPtr == nil {
		delete(one.DNS, ip.String())
	} else {
		one.DNS[ip.String()] = *wanted.DNSPtr
	}
	return nil
}

// placeNamed is the location of a request that may name a location or, as older clients do, a
// datacenter; nil if there is no such place.
func (c *Cloud) placeNamed(place, dc string) *location {
	if place == "" && dc != "" && !c.since(APINovember2026) {
		if found, ok := byIDOrName(c.catalog.datacenters, 0, dc); ok {
			return found.location
		}
		return nil
	}
	return c.locationNamed(place)
}
