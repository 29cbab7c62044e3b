package cloud

import (
	"crypto/rand"
	"regexp"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// hostName matches the server names that the API accepts (RFC 1123).
var hostName = regexp.MustCompile(
	`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)

// largestUserData is the API's limit in bytes.
const largestUserData = 32 << 10

// serverRequest is schema.ServerCreateRequest with what older clients send, and ssh keys by name.
type serverRequest struct {
	schema.ServerCreateRequest
	Datacenter string            `json:"datacenter"`
	SSHKeys    []schema.IDOrName `json:"ssh_keys"`
}

func (c *Cloud) createServer(q *call, wanted serverRequest) (any, error) {
	made, err := c.draftServer(wanted)
	if err != nil {
		return nil, err
	}
	addresses, err := c.draftAddresses(wanted.PublicNet, made)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 && len(made.Nets) == 0 {
		return nil, invalid("public_net", "the server would have no network at all")
	}
	if q.soldOut(c.serverTypeOf(made).Name, made.Location) {
		return nil, refuse("resource_unavailable", "error during placement")
	}
	if made.meta, err = c.servers().begin(q, wanted.Name, wanted.Labels); err != nil {
		return nil, err
	}
	c.state.Servers[made.ID] = made
	for _, address := range addresses {
		c.own(address, made)
	}
	for _, wall := range wanted.Firewalls {
		one := c.state.Firewalls[wall.Firewall]
		one.Servers = append(one.Servers, made.ID)
	}
	for _, disk := range wanted.Volumes {
		c.state.Volumes[disk].Server = made.ID
	}
	return c.startCreating(q, made, wanted), nil
}

// startCreating begins the actions of a new server and returns the reply.
func (c *Cloud) startCreating(q *call, made *server, wanted serverRequest) any {
	reply := map[string]any{"root_password": nil}
	reply["action"] = q.begin("create_server", on(kindServer, made.ID)).view()
	next := []*action{}
	if wanted.StartAfterCreate == nil || *wanted.StartAfterCreate {
		next = append(next, q.begin("start_server", on(kindServer, made.ID)))
	}
	reply["next_actions"] = views(next)
	if len(wanted.SSHKeys) == 0 {
		reply["root_password"] = newPassword()
	}
	reply["server"] = c.viewServer(made)
	return reply
}

// newPassword returns a root password, which is only in the reply.
func newPassword() string { return rand.Text() }

// draftServer makes the record of a server from a request, or returns the request's error.
func (c *Cloud) draftServer(wanted serverRequest) (*server, error) {
	if !hostName.MatchString(wanted.Name) {
		return nil, invalid("name", "%q is not a host name", wanted.Name)
	}
	if len(wanted.UserData) > largestUserData {
		return nil, invalid("user_data", "is longer than %d bytes", largestUserData)
	}
	kind, ok := byIDOrName(c.catalog.serverTypes, wanted.ServerType.ID, wanted.ServerType.Name)
	if !ok {
		return nil, invalid("server_type", "server type %q not found", idOrNameText(wanted.ServerType))
	}
	where, err := c.whereToPut(kind, wanted)
	if err != nil {
		return nil, err
	}
	base, err := c.imageFor(wanted.Image, kind.architecture)
	if err != nil {
		return nil, err
	}
	if base.DiskSize > kind.disk {
		return nil, invalid("image", "the image needs a disk of %d GB, server type %s has %d", base.DiskSize, kind.Name,
			kind.disk)
	}
	if err := c.checkReferences(wanted, where); err != nil {
		return nil, err
	}
	made := &server{
		Status: statusInitializing, Type: kind.ID, Disk: kind.disk, Image: base.ID, Location: where.Name,
		UserData: wanted.UserData, PlacementGroup: wanted.PlacementGroup,
	}
	for _, id := range wanted.Networks {
		if made.attachment(id) != nil {
			return nil, invalid("networks", "network %d is named twice", id)
		}
		place, err := c.attach(id, where.view.NetworkZone, "", "")
		if err != nil {
			return nil, err
		}
		place.Pending = true // shown when the server has been created
		made.Nets = append(made.Nets, *place)
	}
	return made, nil
}

// whereToPut is the location of a new server: the one that is asked for, or the first that has the
// type in stock; where it is out of stock everywhere, any that offers it, which the stock will then refuse.
func (c *Cloud) whereToPut(kind *serverType, wanted serverRequest) (*location, error) {
	if kind.retired != nil && now().After(kind.retired.UnavailableAfter) {
		return nil, refuse("invalid_server_type", "server type %s is deprecated and no longer available", kind.Name)
	}
	if wanted.Location == "" && wanted.Datacenter == "" {
		var any *location
		for _, at := range ordered(c.catalog.locations) {
			offered, inStock := c.offered(kind, at)
			if inStock {
				return at, nil
			}
			if offered {
				any = at
			}
		}
		if any == nil {
			return nil, refuse("resource_unavailable", "error during placement")
		}
		return any, nil
	}
	where := c.placeNamed(wanted.Location, wanted.Datacenter)
	if where == nil {
		return nil, invalid("location", "location %q not found", wanted.Location+wanted.Datacenter)
	}
	if offered, _ := c.offered(kind, where); !offered {
		return nil, invalid("server_type", "unsupported location for server type: %s is not offered in %s", kind.Name,
			where.Name)
	}
	return where, nil
}

// checkReferences refuses a request that names resources that do not exist or cannot be used.
func (c *Cloud) checkReferences(wanted serverRequest, where *location) error {
	for _, key := range wanted.SSHKeys {
		if _, ok := byIDOrName(c.state.SSHKeys, key.ID, key.Name); !ok {
			return invalid("ssh_keys", "SSH key %q not found", idOrNameText(key))
		}
	}
	for _, wall := range wanted.Firewalls {
		if c.state.Firewalls[wall.Firewall] == nil {
			return invalid("firewalls", "firewall with ID '%d' not found", wall.Firewall)
		}
	}
	for _, id := range wanted.Volumes {
		disk := c.state.Volumes[id]
		if disk == nil || disk.Server != 0 || disk.Location != where.Name {
			return invalid("volumes", "volume with ID '%d' not found in %s, or attached elsewhere", id, where.Name)
		}
	}
	if wanted.PlacementGroup != 0 {
		return c.checkPlacement(wanted.PlacementGroup)
	}
	return nil
}

// draftAddresses are the primary IPs that a new server gets: its own, or those that the request names.
func (c *Cloud) draftAddresses(wanted *schema.ServerCreatePublicNet, to *server) ([]*primaryIP, error) {
	if wanted == nil {
		wanted = &schema.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true}
	}
	var addresses []*primaryIP
	for _, one := range []struct {
		version string
		enabled bool
		id      int64
	}{{"ipv4", wanted.EnableIPv4, wanted.IPv4ID}, {"ipv6", wanted.EnableIPv6, wanted.IPv6ID}} {
		if !one.enabled {
			continue
		}
		address, err := c.newPrimaryIP(one.version, to.Location)
		if one.id != 0 {
			address, err = c.existingAddress(one.id, one.version, to)
		}
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

func (c *Cloud) existingAddress(id int64, version string, to *server) (*primaryIP, error) {
	address := c.state.PrimaryIPs[id]
	switch {
	case address == nil:
		return nil, invalid("public_net."+version, "primary IP with ID '%d' not found", id)
	case address.Type != version:
		return nil, refuse("primary_ip_version_mismatch", "primary IP %d is not of version %s", id, version)
	case address.taken():
		return nil, refuse("primary_ip_assigned", "primary IP %d is already assigned", id)
	case address.Location != to.Location:
		return nil, refuse("primary_ip_datacenter_mismatch", "primary IP %d is in %s", id, address.Location)
	}
	return address, nil
}

// own gives the server an address; one that was created for it is deleted with it.
func (c *Cloud) own(address *primaryIP, by *server) {
	if address.ID == 0 {
		address.meta = c.newMeta("", nil)
		address.Name = "primary_ip-" + idText(address.ID)
		address.AutoDelete = true
		c.state.PrimaryIPs[address.ID] = address
	}
	address.Assignee = by.ID
}
