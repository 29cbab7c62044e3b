package cloud

import (
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// target is where a load balancer forwards to, in the API's own form.
type target struct {
	Type          string                                  `json:"type"`
	Server        *schema.LoadBalancerTargetServer        `json:"server,omitempty"`
	LabelSelector *schema.LoadBalancerTargetLabelSelector `json:"label_selector,omitempty"`
	IP            *schema.LoadBalancerTargetIP            `json:"ip,omitempty"`
	UsePrivateIP  bool                                    `json:"use_private_ip"`
}

// targetView is a target with its health, and of a label selector with what it selects.
type targetView struct {
	target
	HealthStatus []schema.LoadBalancerTargetHealthStatus `json:"health_status,omitempty"`
	Targets      []targetView                            `json:"targets,omitempty"`
}

// same says whether two targets name the same resource.
func (t target) same(other target) bool {
	return t.Type == other.Type && deref(t.Server) == deref(other.Server) &&
		deref(t.LabelSelector) == deref(other.LabelSelector) && deref(t.IP) == deref(other.IP)
}

// check refuses a target that does not name a resource of its type.
func (t target) check() error {
	switch {
	case t.Type == "server" && t.Server != nil:
		return nil
	case t.Type == "label_selector" && t.LabelSelector != nil && t.LabelSelector.Selector != "":
		if _, err := parseSelector(t.LabelSelector.Selector); err != nil {
			return invalid("selector", "%v", err)
		}
		return nil
	case t.Type == "ip" && t.IP != nil:
		if _, err := netip.ParseAddr(t.IP.IP); err != nil {
			return invalid("ip", "%q is not an IP address", t.IP.IP)
		}
		return nil
	}
	return invalid("type", "%q is not server, label_selector or ip, or the field of that name is missing", t.Type)
}

// aim adds a target to a load balancer.
func (c *Cloud) aim(from *loadBalancer, to target) error {
	if err := to.check(); err != nil {
		return err
	}
	if slices.ContainsFunc(from.Targets, to.same) {
		return refuse("target_already_defined", "the target is already defined")
	}
	if to.UsePrivateIP && from.Net == nil {
		return refuse("load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
	}
	if kind := c.catalog.loadBalancerTypes[from.Type]; len(from.Targets) >= kind.targets {
		return refuse("resource_limit_exceeded", "%s has at most %d targets", kind.Name, kind.targets)
	}
	switch to.Type {
	case "server":
		one := c.state.Servers[to.Server.ID]
		switch {
		case one == nil:
			return invalid("server", "server with ID '%d' not found", to.Server.ID)
		case to.UsePrivateIP && one.attachment(from.Net.Network) == nil:
			return refuse("server_not_attached_to_network", "server %s is not attached to the load balancer's network", one.Name)
		case !to.UsePrivateIP && c.addressOf(one.ID, "ipv4") == nil:
			return refuse("missing_ipv4", "server %s has no public IPv4 address", one.Name)
		}
	case "ip":
		ip := netip.MustParseAddr(to.IP.IP)
		if c.config.PublicServers.Contains(ip) || c.config.PublicLoadBalancers.Contains(ip) {
			return refuse("cloud_resource_ip_not_allowed", "IP %v belongs to a cloud resource", ip)
		}
		if !loopback.Contains(ip) {
			return refuse("ip_not_owned", "IP %v is not one of the lab's addresses %v", ip, loopback)
		}
	}
	from.Targets = append(from.Targets, to)
	return nil
}

func addTarget(q *call, one *loadBalancer, wanted target) (any, error) {
	if err := q.aim(one, wanted); err != nil {
		return nil, err
	}
	return q.acted("add_target", on(kindLoadBalancer, one.ID)), nil
}

func removeTarget(q *call, one *loadBalancer, wanted target) (any, error) {
	if err := wanted.check(); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(one.Targets, wanted.same)
	if at < 0 {
		return nil, invalid("type", "the load balancer has no such target")
	}
	one.Targets = slices.Delete(one.Targets, at, at+1)
	return q.acted("remove_target", on(kindLoadBalancer, one.ID)), nil
}

// targetServers are the servers that a load balancer forwards to, by themselves or by selector.
func (c *Cloud) targetServers(from *loadBalancer) []int64 {
	var found []int64
	for _, to := range from.Targets {
		for _, one := range c.expand(to) {
			found = append(found, one.ID)
		}
	}
	return found
}

// expand returns the servers of a target.
func (c *Cloud) expand(to target) []*server {
	switch {
	case to.LabelSelector != nil:
		return c.selected(to.LabelSelector.Selector)
	case to.Server != nil && c.state.Servers[to.Server.ID] != nil:
		return []*server{c.state.Servers[to.Server.ID]}
	}
	return nil
}

// addressFor is where the load balancer reaches a server; zero if it cannot.
func (c *Cloud) addressFor(from *loadBalancer, one *server, private bool) netip.Addr {
	if !private {
		if v4 := c.addressOf(one.ID, "ipv4"); v4 != nil {
			return v4.Range.Addr()
		}
		return netip.Addr{}
	}
	if from.Net != nil {
		if place := one.attachment(from.Net.Network); place != nil && !place.Pending {
			return place.IP
		}
	}
	return netip.Addr{}
}

func (c *Cloud) viewTarget(from *loadBalancer, to target) targetView {
	shown := targetView{target: to}
	switch to.Type {
	case "ip":
		shown.HealthStatus = c.health(from, netip.MustParseAddr(to.IP.IP))
	case "server":
		shown.HealthStatus = c.health(from, netip.Addr{})
		for _, one := range c.expand(to) {
			shown.HealthStatus = c.health(from, c.addressFor(from, one, to.UsePrivateIP))
		}
	case "label_selector":
		for _, one := range c.expand(to) {
			each := target{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: one.ID}, UsePrivateIP: to.UsePrivateIP}
			shown.Targets = append(shown.Targets, targetView{
				target: each, HealthStatus: c.health(from, c.addressFor(from, one, to.UsePrivateIP)),
			})
		}
	}
	return shown
}

// health is the state of one target for each service.
func (c *Cloud) health(from *loadBalancer, ip netip.Addr) []schema.LoadBalancerTargetHealthStatus {
	status := []schema.LoadBalancerTargetHealthStatus{}
	for _, port := range from.Services {
		status = append(status, schema.LoadBalancerTargetHealthStatus{
			ListenPort: port.ListenPort,
			Status:     c.balancer.health(frontendKey{from.ID, port.ListenPort}, ip),
		})
	}
	return status
}

// frontends are the current frontends of all load balancers.
func (c *Cloud) frontends() map[frontendKey]frontend {
	wanted := map[frontendKey]frontend{}
	scaled := func(seconds int) time.Duration {
		return time.Duration(float64(seconds) * c.config.Latency.HealthCheck * float64(time.Second))
	}
	for _, one := range c.state.LoadBalancers {
		var listen, backends []netip.Addr
		if one.Public {
			listen = append(listen, one.IPv4)
		}
		if one.Net != nil {
			listen = append(listen, one.Net.IP)
		}
		for _, to := range one.Targets {
			if to.Type == "ip" {
				backends = append(backends, netip.MustParseAddr(to.IP.IP))
			}
			for _, member := range c.expand(to) {
				if ip := c.addressFor(one, member, to.UsePrivateIP); ip.IsValid() && !slices.Contains(backends, ip) {
					backends = append(backends, ip)
				}
			}
		}
		for _, port := range one.Services {
			wanted[frontendKey{one.ID, port.ListenPort}] = frontend{
				listen: listen, backends: backends, port: port.DestinationPort,
				leastConnections: one.Algorithm == "least_connections",
				check: probe{
					port: port.HealthCheck.Port, http: port.HealthCheck.HTTP, retries: port.HealthCheck.Retries,
					interval: scaled(port.HealthCheck.Interval), timeout: max(scaled(port.HealthCheck.Timeout), shortestProbe),
				},
			}
		}
	}
	return wanted
}
