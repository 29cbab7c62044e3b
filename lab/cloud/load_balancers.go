package cloud

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindLoadBalancer = "load_balancer"

// loadBalancer is a TCP load balancer; its forwarders have the connections.
type loadBalancer struct {
	meta
	Type      int64       `json:"type"`
	Location  string      `json:"location"`
	Algorithm string      `json:"algorithm"`
	IPv4      netip.Addr  `json:"ipv4"`
	IPv6      int64       `json:"ipv6,omitempty"` // ID of its Primary IPv6; 0: it has an address of its own
	Public    bool        `json:"public"`
	DNS       string      `json:"dns,omitempty"` // reverse name of IPv4
	Net       *attachment `json:"net,omitempty"`
	Services  []service   `json:"services,omitempty"`
	Targets   []target    `json:"targets,omitempty"`
}

func (c *Cloud) loadBalancers() resource[*loadBalancer] {
	return resource[*loadBalancer]{
		kind: kindLoadBalancer, path: "load_balancers", all: c.state.LoadBalancers,
		view:   func(one *loadBalancer) any { return c.viewLoadBalancer(one) },
		update: noUpdate[*loadBalancer],
		remove: removeLoadBalancer,
		commands: map[string]func(*call, *loadBalancer) (any, error){
			"add_service":              with(addService),
			"update_service":           with(updateService),
			"delete_service":           with(deleteService),
			"add_target":               with(addTarget),
			"remove_target":            with(removeTarget),
			"attach_to_network":        with(attachLoadBalancer),
			"detach_from_network":      with(detachLoadBalancer),
			"change_type":              with(changeLoadBalancerType),
			"change_algorithm":         with(changeAlgorithm),
			"change_dns_ptr":           with(changeLoadBalancerDNS),
			"change_protection":        changeProtection[*loadBalancer](kindLoadBalancer),
			"enable_public_interface":  publicInterface(true),
			"disable_public_interface": publicInterface(false),
		},
	}
}

// removeLoadBalancer deletes at once until October 2026. Since then the deletion is an action, at whose end the load
// balancer is gone.
func removeLoadBalancer(q *call, one *loadBalancer) (any, error) {
	if !q.since(APINovember2026) {
		q.forgetLoadBalancer(one)
		return nil, nil
	}
	if q.deleting(one) {
		return nil, refuse("locked", "load balancer %s is locked: another action is running", one.Name)
	}
	q.created = true
	return q.acted("delete_load_balancer", on(kindLoadBalancer, one.ID)), nil
}

// deleting tells whether the deletion of a load balancer is running.
func (c *Cloud) deleting(one *loadBalancer) bool {
	for _, a := range c.state.Actions {
		if a.Status == actionRunning && a.Command == "delete_load_balancer" && a.concerns(kindLoadBalancer, one.ID) {
			return true
		}
	}
	return false
}

// loadBalancerEffects are the effects of actions on load balancers.
func (c *Cloud) loadBalancerEffects() map[string]func(*action) effect {
	return map[string]func(*action) effect{"delete_load_balancer": func(a *action) effect {
		return effect{done: func(failed bool) {
			for _, resource := range a.Resources {
				if one := c.state.LoadBalancers[resource.ID]; one != nil && resource.Type == kindLoadBalancer && !failed {
					c.forgetLoadBalancer(one)
				}
			}
		}}
	}}
}

// forgetLoadBalancer removes a load balancer. Its Primary IPs stay, unless they are deleted with it.
func (c *Cloud) forgetLoadBalancer(one *loadBalancer) {
	delete(c.state.LoadBalancers, one.ID)
	for id, address := range c.state.PrimaryIPs {
		switch {
		case address.LoadBalancer != one.ID:
		case address.AutoDelete:
			delete(c.state.PrimaryIPs, id)
		default:
			address.LoadBalancer = 0
		}
	}
}

// LoadBalancerNames are the names of the load balancers.
func (c *Cloud) LoadBalancerNames() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.state.LoadBalancers {
		names = append(names, one.Name)
	}
	return names
}

// VanishLoadBalancer removes a load balancer without any request. A Primary IP that it has stays.
func (c *Cloud) VanishLoadBalancer(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := byIDOrName(c.state.LoadBalancers, 0, name)
	if !ok {
		return refuse("not_found", "making a load balancer vanish: there is no load balancer %q", name)
	}
	c.forgetLoadBalancer(one)
	c.keep()
	return nil
}

// loadBalancerView is schema.LoadBalancer with services and targets as the API writes them: absent
// parts are left out, not null.
type loadBalancerView struct {
	schema.LoadBalancer
	Services []service    `json:"services"`
	Targets  []targetView `json:"targets"`
}

func (c *Cloud) viewLoadBalancer(one *loadBalancer) loadBalancerView {
	where := c.locationNamed(one.Location)
	included, _ := traffic(where.view.NetworkZone)
	var none uint64
	shown := loadBalancerView{
		LoadBalancer: schema.LoadBalancer{
			ID: one.ID, Name: one.Name, PrivateNet: []schema.LoadBalancerPrivateNet{}, Location: where.view,
			LoadBalancerType: c.viewLoadBalancerType(c.catalog.loadBalancerTypes[one.Type]),
			Protection:       schema.LoadBalancerProtection{Delete: one.Protected},
			Labels:           one.labels(), Created: one.Created,
			Algorithm:       schema.LoadBalancerAlgorithm{Type: one.Algorithm},
			IncludedTraffic: included, OutgoingTraffic: &none, IngoingTraffic: &none,
		},
		Services: orEmpty(one.Services),
		Targets:  []targetView{},
	}
	shown.PublicNet.Enabled = one.Public
	shown.PublicNet.IPv4 = schema.LoadBalancerPublicNetIPv4{
		IP: one.IPv4.String(), DNSPtr: orElse(one.DNS, "static."+reversed(one.IPv4)+".clients.your-server.de"),
	}
	shown.PublicNet.IPv6.IP = c.loadBalancerIPv6(one).String()
	if own := c.state.PrimaryIPs[one.IPv6]; own != nil {
		shown.PublicNet.IPv6.IP = own.ip()
	}
	if one.Net != nil {
		shown.PrivateNet = append(shown.PrivateNet,
			schema.LoadBalancerPrivateNet{Network: one.Net.Network, IP: one.Net.IP.String()})
	}
	for _, to := range one.Targets {
		shown.Targets = append(shown.Targets, c.viewTarget(one, to))
	}
	return shown
}

// loadBalancerIPv6 is an address that is shown but, as loopback has only one IPv6 address, never
// answers: the last /64 of the range, with the IPv4 address at its end.
func (c *Cloud) loadBalancerIPv6(one *loadBalancer) netip.Addr {
	bytes, v4 := c.config.PublicIPv6.Addr().As16(), one.IPv4.As4()
	bytes[7] = 0xff
	copy(bytes[12:], v4[:])
	return netip.AddrFrom16(bytes)
}

// loadBalancerRequest is schema.LoadBalancerCreateRequest with the lab's services and targets.
type loadBalancerRequest struct {
	schema.LoadBalancerCreateRequest
	Services []serviceRequest `json:"services"`
	Targets  []target         `json:"targets"`
}

func (c *Cloud) createLoadBalancer(q *call, wanted loadBalancerRequest) (any, error) {
	addresses, err := c.addressesFor(wanted.LoadBalancerCreateRequest)
	if err != nil {
		return nil, err
	}
	made, err := c.draftLoadBalancer(wanted)
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		if address.Type == "ipv4" {
			made.IPv4 = address.Range.Addr()
		} else {
			made.IPv6 = address.ID
		}
	}
	if !made.IPv4.IsValid() {
		if made.IPv4, err = c.newLoadBalancerIP(); err != nil {
			return nil, err
		}
	}
	if made.meta, err = c.loadBalancers().begin(q, wanted.Name, wanted.Labels); err != nil {
		return nil, err
	}
	for _, address := range addresses {
		address.LoadBalancer = made.ID
	}
	c.state.LoadBalancers[made.ID] = made
	action := q.begin("create_load_balancer", on(kindLoadBalancer, made.ID))
	return map[string]any{"load_balancer": c.viewLoadBalancer(made), "action": action.view()}, nil
}

// addressesFor are the existing Primary IPs that a request names for a load balancer; none before October 2026, when
// the API ignored that part of it.
func (c *Cloud) addressesFor(wanted schema.LoadBalancerCreateRequest) (found []*primaryIP, err error) {
	if wanted.PublicNet == nil || !c.since(APINovember2026) {
		return nil, nil
	}
	for version, id := range map[string]int64{"ipv4": wanted.PublicNet.IPv4, "ipv6": wanted.PublicNet.IPv6} {
		if id == 0 {
			continue
		}
		one := c.state.PrimaryIPs[id]
		switch {
		case one == nil || one.Type != version:
			return nil, invalid("public_net."+version, "%s primary IP with ID '%d' not found", version, id)
		case one.taken():
			kind, by := one.assignee()
			return nil, refuse("primary_ip_already_assigned", "the primary IP is assigned to %s %d", kind, by)
		}
		where, err := c.whereToBalance(deref(wanted.Location), deref(wanted.NetworkZone))
		if err != nil {
			return nil, err
		}
		if wanted.Location != nil && one.Location != where.Name ||
			c.locationNamed(one.Location).view.NetworkZone != where.view.NetworkZone {
			return nil, invalid("public_net."+version, "the primary IP is in %s, the load balancer in %s", one.Location,
				where.Name)
		}
		found = append(found, one)
	}
	return found, nil
}

// draftLoadBalancer makes the record from a request, or returns the request's error.
func (c *Cloud) draftLoadBalancer(wanted loadBalancerRequest) (*loadBalancer, error) {
	kind, ok := byIDOrName(c.catalog.loadBalancerTypes, wanted.LoadBalancerType.ID, wanted.LoadBalancerType.Name)
	if !ok {
		return nil, invalid("load_balancer_type", "load balancer type %q not found", idOrNameText(wanted.LoadBalancerType))
	}
	where, err := c.whereToBalance(deref(wanted.Location), deref(wanted.NetworkZone))
	if err != nil {
		return nil, err
	}
	made := &loadBalancer{Type: kind.ID, Location: where.Name, Algorithm: "round_robin", Public: true}
	if wanted.Algorithm != nil {
		if err := made.choose(wanted.Algorithm.Type); err != nil {
			return nil, err
		}
	}
	if wanted.PublicInterface != nil {
		made.Public = *wanted.PublicInterface
	}
	if wanted.Network != nil {
		if made.Net, err = c.attach(*wanted.Network, where.view.NetworkZone, "", ""); err != nil {
			return nil, err
		}
	}
	for _, one := range wanted.Services {
		if err := c.addPort(made, one); err != nil {
			return nil, err
		}
	}
	for _, to := range wanted.Targets {
		if err := c.aim(made, to); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// newLoadBalancerIP takes a free address out of the pool.
func (c *Cloud) newLoadBalancerIP() (netip.Addr, error) {
	used := map[netip.Addr]bool{}
	for _, other := range c.state.LoadBalancers {
		used[other.IPv4] = true
	}
	ip, ok := firstFree(c.config.PublicLoadBalancers, used, netip.Addr{})
	if !ok {
		return netip.Addr{}, refuse("resource_limit_exceeded", "the lab's pool of load balancer addresses %v is used up",
			c.config.PublicLoadBalancers)
	}
	return ip, nil
}

// whereToBalance is the location that a request names, by itself or by its network zone.
func (c *Cloud) whereToBalance(place, zone string) (*location, error) {
	if (place == "") == (zone == "") {
		return nil, invalid("location", "either location or network_zone must be given")
	}
	if one := c.locationNamed(place); one != nil {
		return one, nil
	}
	for _, one := range ordered(c.catalog.locations) {
		if one.view.NetworkZone == zone {
			return one, nil
		}
	}
	return nil, invalid("location", "location or network zone %q not found", place+zone)
}

func (l *loadBalancer) choose(algorithm string) error {
	if algorithm != "round_robin" && algorithm != "least_connections" {
		return invalid("type", "%q is no algorithm: it is round_robin or least_connections", algorithm)
	}
	l.Algorithm = algorithm
	return nil
}

func changeAlgorithm(q *call, one *loadBalancer, wanted schema.LoadBalancerActionChangeAlgorithmRequest) (any, error) {
	if err := one.choose(wanted.Type); err != nil {
		return nil, err
	}
	return q.acted("change_algorithm", on(kindLoadBalancer, one.ID)), nil
}

func changeLoadBalancerType(q *call, one *loadBalancer,
	wanted schema.LoadBalancerActionChangeTypeRequest) (any, error) {
	kind, ok := byIDOrName(q.catalog.loadBalancerTypes, wanted.LoadBalancerType.ID, wanted.LoadBalancerType.Name)
	if !ok {
		return nil, invalid("load_balancer_type", "load balancer type %q not found", idOrNameText(wanted.LoadBalancerType))
	}
	if len(one.Services) > kind.services || len(one.Targets) > kind.targets {
		return nil, refuse("invalid_load_balancer_type", "the load balancer has more services or targets than %s can have",
			kind.Name)
	}
	one.Type = kind.ID
	return q.acted("change_load_balancer_type", on(kindLoadBalancer, one.ID)), nil
}

func changeLoadBalancerDNS(q *call, one *loadBalancer,
	wanted schema.LoadBalancerActionChangeDNSPtrRequest) (any, error) {
	if wanted.IP != one.IPv4.String() {
		return nil, invalid("ip", "%q is not the load balancer's IPv4 address", wanted.IP)
	}
	one.DNS = deref(wanted.DNSPtr)
	return q.acted("change_dns_ptr", on(kindLoadBalancer, one.ID)), nil
}

func attachLoadBalancer(q *call, one *loadBalancer,
	wanted schema.LoadBalancerActionAttachToNetworkRequest) (any, error) {
	if one.Net != nil {
		return nil, refuse("load_balancer_already_attached", "the load balancer is already attached to a network")
	}
	place, err := q.attach(wanted.Network, q.locationNamed(one.Location).view.NetworkZone, deref(wanted.IP),
		deref(wanted.IPRange))
	if err != nil {
		return nil, err
	}
	one.Net = place
	return q.acted("attach_to_network", on(kindLoadBalancer, one.ID), on(kindNetwork, wanted.Network)), nil
}

func detachLoadBalancer(q *call, one *loadBalancer,
	wanted schema.LoadBalancerActionDetachFromNetworkRequest) (any, error) {
	if one.Net == nil || one.Net.Network != wanted.Network {
		return nil, refuse("load_balancer_not_attached_to_network", "the load balancer is not attached to network %d",
			wanted.Network)
	}
	one.Net = nil
	return q.acted("detach_from_network", on(kindLoadBalancer, one.ID), on(kindNetwork, wanted.Network)), nil
}

func publicInterface(enabled bool) func(*call, *loadBalancer) (any, error) {
	command := "disable_public_interface"
	if enabled {
		command = "enable_public_interface"
	}
	return func(q *call, one *loadBalancer) (any, error) {
		if !enabled {
			if one.Net == nil {
				return nil, refuse("load_balancer_not_attached_to_network",
					"without a network the load balancer needs its public interface")
			}
			if slices.ContainsFunc(one.Targets, func(to target) bool { return !to.UsePrivateIP }) {
				return nil, refuse("targets_without_use_private_ip", "the load balancer has targets that use the public IP")
			}
		}
		one.Public = enabled
		return q.acted(command, on(kindLoadBalancer, one.ID)), nil
	}
}

// LoadBalancers returns all load balancers, oldest first.
func (c *Cloud) LoadBalancers() []LoadBalancer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []LoadBalancer
	for _, one := range ordered(c.state.LoadBalancers) {
		seen := LoadBalancer{ID: one.ID, Name: one.Name, Labels: one.labels(), Location: one.Location, Services: []Service{}}
		if one.Public {
			seen.PublicIPv4 = one.IPv4
		}
		if one.Net != nil {
			seen.PrivateIP = one.Net.IP
		}
		for _, port := range one.Services {
			healthy, all, listening := c.balancer.summary(frontendKey{one.ID, port.ListenPort})
			seen.Services = append(seen.Services, Service{
				ListenPort: port.ListenPort, DestinationPort: port.DestinationPort,
				Listening: listening, Healthy: healthy, Targets: all,
			})
		}
		found = append(found, seen)
	}
	return found
}
