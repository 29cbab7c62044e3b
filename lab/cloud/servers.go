package cloud

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindServer = "server"

// The states of a server that the lab simulates.
const (
	statusInitializing = "initializing"
	statusStarting     = "starting"
	statusRunning      = "running"
	statusStopping     = "stopping"
	statusOff          = "off"
	statusRebuilding   = "rebuilding"
	statusDeleting     = "deleting"
)

// server is a virtual machine. Its public addresses are primary IPs.
type server struct {
	meta
	Status         string       `json:"status"`
	Type           int64        `json:"type"`
	Disk           int          `json:"disk"` // GB; stays when the type changes without its disk
	Image          int64        `json:"image"`
	Location       string       `json:"location"`
	UserData       string       `json:"userData,omitempty"`
	Nets           []attachment `json:"nets,omitempty"`
	PlacementGroup int64        `json:"placementGroup,omitempty"`
	Rescue         bool         `json:"rescue,omitempty"`
	RescueKeys     []string     `json:"rescueKeys,omitempty"` // as they were when the rescue system was enabled
	NoRebuild      bool         `json:"noRebuild,omitempty"`  // protected against rebuild
}

// attachment is the server's place in a network; nil if it has none.
func (s *server) attachment(network int64) *attachment {
	at := slices.IndexFunc(s.Nets, func(place attachment) bool { return place.Network == network })
	if at < 0 {
		return nil
	}
	return &s.Nets[at]
}

func (s *server) detach(network int64) {
	s.Nets = slices.DeleteFunc(s.Nets, func(place attachment) bool { return place.Network == network })
}

func (c *Cloud) servers() resource[*server] {
	return resource[*server]{
		kind: kindServer, path: "servers", all: c.state.Servers,
		view:    func(one *server) any { return c.viewServer(one) },
		filters: map[string]func(*server) string{"status": func(one *server) string { return one.Status }},
		update: func(q *call, one *server) error {
			var change schema.ServerUpdateRequest
			if err := q.decode(&change); err != nil {
				return err
			}
			if change.Name != "" && !hostName.MatchString(change.Name) {
				return invalid("name", "%q is not a host name", change.Name)
			}
			return nil
		},
		remove:   removeServer,
		commands: serverCommands(),
	}
}

// serverView is schema.Server with what only the API's JSON has: a public net without addresses is
// null, and the datacenter, which the API had until 2026-07-01.
type serverView struct {
	schema.Server
	PublicNet  publicNetView   `json:"public_net"`
	Datacenter *datacenterView `json:"datacenter,omitempty"`
}

type publicNetView struct {
	IPv4        *schema.ServerPublicNetIPv4 `json:"ipv4"`
	IPv6        *schema.ServerPublicNetIPv6 `json:"ipv6"`
	FloatingIPs []int64                     `json:"floating_ips"`
	Firewalls   []schema.ServerFirewall     `json:"firewalls"`
}

func (c *Cloud) serverTypeOf(one *server) *serverType { return c.catalog.serverTypes[one.Type] }

func (c *Cloud) viewServer(one *server) serverView {
	where := c.locationNamed(one.Location)
	included, _ := traffic(where.view.NetworkZone)
	var none uint64
	shown := serverView{
		Server: schema.Server{
			ID: one.ID, Name: one.Name, Status: one.Status, Created: one.Created,
			PrivateNet: []schema.ServerPrivateNet{}, ServerType: c.viewServerType(c.serverTypeOf(one)),
			IncludedTraffic: included, OutgoingTraffic: &none, IngoingTraffic: &none,
			RescueEnabled: one.Rescue, Locked: c.locked(one), Location: where.view,
			Protection: schema.ServerProtection{Delete: one.Protected, Rebuild: one.NoRebuild},
			Labels:     one.labels(), Volumes: []int64{}, PrimaryDiskSize: one.Disk, LoadBalancers: []int64{},
		},
		PublicNet:  c.viewPublicNet(one),
		Datacenter: c.viewDatacenter(one.Location),
	}
	if base := c.state.Images[one.Image]; base != nil {
		made := c.viewImage(base)
		shown.Image = &made
	}
	for _, place := range one.Nets {
		if place.Pending {
			continue
		}
		shown.PrivateNet = append(shown.PrivateNet, schema.ServerPrivateNet{
			Network: place.Network, IP: place.IP.String(), AliasIPs: texts(place.Aliases), MACAddress: place.MAC,
		})
	}
	for _, disk := range ordered(c.state.Volumes) {
		if disk.Server == one.ID {
			shown.Volumes = append(shown.Volumes, disk.ID)
		}
	}
	if group := c.state.PlacementGroups[one.PlacementGroup]; group != nil {
		of := c.viewPlacementGroup(group)
		shown.PlacementGroup = &of
	}
	for _, balancer := range ordered(c.state.LoadBalancers) {
		if slices.Contains(c.targetServers(balancer), one.ID) {
			shown.LoadBalancers = append(shown.LoadBalancers, balancer.ID)
		}
	}
	return shown
}

func (c *Cloud) viewPublicNet(one *server) publicNetView {
	shown := publicNetView{FloatingIPs: []int64{}, Firewalls: []schema.ServerFirewall{}}
	if v4 := c.addressOf(one.ID, "ipv4"); v4 != nil {
		shown.IPv4 = &schema.ServerPublicNetIPv4{ID: v4.ID, IP: v4.ip(), DNSPtr: v4.reverse()}
	}
	if v6 := c.addressOf(one.ID, "ipv6"); v6 != nil {
		shown.IPv6 = &schema.ServerPublicNetIPv6{ID: v6.ID, IP: v6.Range.String(),
			DNSPtr: []schema.ServerPublicNetIPv6DNSPtr{}}
		for _, name := range c.viewPrimaryIP(v6).DNSPtr {
			shown.IPv6.DNSPtr = append(shown.IPv6.DNSPtr, schema.ServerPublicNetIPv6DNSPtr{IP: name.IP, DNSPtr: name.DNSPtr})
		}
	}
	for _, wall := range c.firewallsOn(one) {
		shown.Firewalls = append(shown.Firewalls, schema.ServerFirewall{ID: wall.ID, Status: "applied"})
	}
	return shown
}

// locked says whether an action runs during which the API accepts no other on the server.
func (c *Cloud) locked(one *server) bool {
	for _, running := range c.state.Actions {
		if running.Status == actionRunning && slices.Contains(lockingCommands, running.Command) &&
			running.concerns(kindServer, one.ID) {
			return true
		}
	}
	return false
}

var lockingCommands = []string{"create_server", "delete_server", "rebuild_server", "change_server_type", "create_image"}

func texts(ips []netip.Addr) []string {
	written := make([]string, 0, len(ips))
	for _, ip := range ips {
		written = append(written, ip.String())
	}
	return written
}

// Servers returns all servers, oldest first.
func (c *Cloud) Servers() []Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Server
	for _, one := range ordered(c.state.Servers) {
		found = append(found, c.machineView(one))
	}
	return found
}

// machineView is the server as its Machine sees it.
func (c *Cloud) machineView(one *server) Server {
	kind := c.serverTypeOf(one)
	seen := Server{
		ID: one.ID, Name: one.Name, Status: one.Status, Labels: maps.Clone(one.Labels),
		Type: kind.Name, Architecture: kind.architecture,
		Location: one.Location, Datacenter: c.datacenterOf(one.Location).Name,
		Rescue: one.Rescue, RescueKeys: slices.Clone(one.RescueKeys), Created: one.Created, UserData: one.UserData,
		Private: []PrivateAddress{},
	}
	if base := c.state.Images[one.Image]; base != nil {
		seen.Image = Image{ID: base.ID, Name: base.Name, Description: base.Description, OSFlavor: base.OSFlavor,
			Labels: maps.Clone(base.Labels)}
	}
	if v4 := c.addressOf(one.ID, "ipv4"); v4 != nil {
		seen.PublicIPv4 = v4.Range.Addr()
	}
	if v6 := c.addressOf(one.ID, "ipv6"); v6 != nil {
		seen.PublicIPv6 = v6.Range
	}
	for _, place := range one.Nets {
		if !place.Pending {
			seen.Private = append(seen.Private,
				PrivateAddress{Network: place.Network, IP: place.IP, Aliases: slices.Clone(place.Aliases)})
		}
	}
	return seen
}

// removeServer begins the removal of a server. Its volumes are detached, its automatically created primary IPs are
// deleted, and load balancers and firewalls drop it.
func removeServer(q *call, one *server) (any, error) {
	if q.locked(one) {
		return nil, lockedError(one)
	}
	one.Status = statusDeleting
	return q.acted("delete_server", on(kindServer, one.ID)), nil
}

func lockedError(one *server) error {
	return refuse("locked", "server %s is locked: another action is running", one.Name)
}

// forget removes everything that is left of a server.
func (c *Cloud) forget(one *server) {
	delete(c.state.Servers, one.ID)
	for id, address := range c.state.PrimaryIPs {
		switch {
		case address.Assignee != one.ID:
		case address.AutoDelete:
			delete(c.state.PrimaryIPs, id)
		default:
			address.Assignee = 0
		}
	}
	for _, disk := range c.state.Volumes {
		if disk.Server == one.ID {
			disk.Server = 0
		}
	}
	for _, wall := range c.state.Firewalls {
		wall.Servers = slices.DeleteFunc(wall.Servers, func(id int64) bool { return id == one.ID })
	}
	for _, balancer := range c.state.LoadBalancers {
		balancer.Targets = slices.DeleteFunc(balancer.Targets,
			func(to target) bool { return to.Server != nil && to.Server.ID == one.ID })
	}
	if base := c.state.Images[one.Image]; base != nil && base.Deleted != nil && !c.showsImage(base.ID) {
		delete(c.state.Images, base.ID)
	}
}

// showsImage says whether a server still shows the image.
func (c *Cloud) showsImage(id int64) bool {
	for _, one := range c.state.Servers {
		if one.Image == id {
			return true
		}
	}
	return false
}
