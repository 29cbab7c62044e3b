package cloud

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// serverCommands are the actions on servers that the lab simulates.
func serverCommands() map[string]func(*call, *server) (any, error) {
	commands := map[string]func(*call, *server) (any, error){
		"poweron":                     powerOn,
		"poweroff":                    power("stop_server", statusStopping),
		"shutdown":                    power("shutdown_server", statusStopping),
		"reboot":                      power("reboot_server", statusRunning),
		"reset":                       power("reset_server", statusRunning),
		"reset_password":              resetPassword,
		"rebuild":                     with(rebuild),
		"change_type":                 with(changeServerType),
		"create_image":                with(createImage),
		"enable_rescue":               with(enableRescue),
		"disable_rescue":              disableRescue,
		"attach_to_network":           with(attachServer),
		"detach_from_network":         with(detachServer),
		"change_alias_ips":            with(changeAliasIPs),
		"add_to_placement_group":      with(addToPlacementGroup),
		"remove_from_placement_group": removeFromPlacementGroup,
		"change_dns_ptr":              changeServerDNS,
		"change_protection":           with(protectServer),
	}
	for name, command := range commands {
		commands[name] = func(q *call, one *server) (any, error) {
			if q.locked(one) {
				return nil, lockedError(one)
			}
			return command(q, one)
		}
	}
	return commands
}

func powerOn(q *call, one *server) (any, error) {
	if one.Status == statusOff {
		one.Status = statusStarting
	}
	return q.acted("start_server", on(kindServer, one.ID)), nil
}

// power adds a command that needs a running server; it does not change one that is off.
func power(action, meanwhile string) func(*call, *server) (any, error) {
	return func(q *call, one *server) (any, error) {
		if one.Status == statusRunning {
			one.Status = meanwhile
		}
		return q.acted(action, on(kindServer, one.ID)), nil
	}
}

func resetPassword(q *call, one *server) (any, error) {
	action := q.begin("reset_password", on(kindServer, one.ID))
	return map[string]any{"action": action.view(), "root_password": newPassword()}, nil
}

func rebuild(q *call, one *server, wanted schema.ServerActionRebuildRequest) (any, error) {
	if one.NoRebuild {
		return nil, refuse("protected", "server rebuild is protected")
	}
	base, err := q.imageFor(wanted.Image, q.serverTypeOf(one).architecture)
	if err != nil {
		return nil, err
	}
	one.Image, one.Status = base.ID, statusRebuilding
	if wanted.UserData != nil {
		one.UserData = *wanted.UserData
	}
	action := q.begin("rebuild_server", on(kindServer, one.ID), on(kindImage, base.ID))
	return map[string]any{"action": action.view(), "root_password": newPassword()}, nil
}

func changeServerType(q *call, one *server, wanted schema.ServerActionChangeTypeRequest) (any, error) {
	was := q.serverTypeOf(one)
	kind, ok := byIDOrName(q.catalog.serverTypes, wanted.ServerType.ID, wanted.ServerType.Name)
	switch {
	case !ok:
		return nil, invalid("server_type", "server type %q not found", idOrNameText(wanted.ServerType))
	case one.Status != statusOff:
		return nil, refuse("server_not_stopped", "the server must be stopped to change its type")
	case kind.architecture != was.architecture || kind.disk < one.Disk:
		return nil, refuse("invalid_server_type", "server type %s has another architecture or too small a disk", kind.Name)
	case q.soldOut(kind.Name, one.Location):
		return nil, refuse("resource_unavailable", "error during placement")
	}
	one.Type = kind.ID
	if wanted.UpgradeDisk {
		one.Disk = kind.disk
	}
	return q.acted("change_server_type", on(kindServer, one.ID)), nil
}

func enableRescue(q *call, one *server, wanted schema.ServerActionEnableRescueRequest) (any, error) {
	if wanted.Type != nil && *wanted.Type != "linux64" {
		return nil, invalid("type", "%q is no rescue system: it is linux64", *wanted.Type)
	}
	var keys []string
	for _, id := range wanted.SSHKeys {
		key := q.state.SSHKeys[id]
		if key == nil {
			return nil, invalid("ssh_keys", "SSH key with ID '%d' not found", id)
		}
		keys = append(keys, key.Public)
	}
	one.Rescue, one.RescueKeys = true, keys
	action := q.begin("enable_rescue", on(kindServer, one.ID))
	return map[string]any{"action": action.view(), "root_password": newPassword()}, nil
}

// leaveRescue has the next boot go to the disk.
func (s *server) leaveRescue() { s.Rescue, s.RescueKeys = false, nil }

func disableRescue(q *call, one *server) (any, error) {
	one.leaveRescue()
	return q.acted("disable_rescue", on(kindServer, one.ID)), nil
}

func attachServer(q *call, one *server, wanted schema.ServerActionAttachToNetworkRequest) (any, error) {
	to := q.state.Networks[wanted.Network]
	if to == nil {
		return nil, invalid("network", "network with ID '%d' not found", wanted.Network)
	}
	for _, place := range one.Nets {
		if place.Network == to.ID {
			return nil, refuse("server_already_attached", "the server is already attached to the network")
		}
		if q.state.Networks[place.Network].Range.Overlaps(to.Range) {
			return nil, refuse("networks_overlap", "the network overlaps with another of the server's networks")
		}
	}
	place, err := q.attach(to.ID, q.locationNamed(one.Location).view.NetworkZone, deref(wanted.IP), deref(wanted.IPRange))
	if err != nil {
		return nil, err
	}
	place.Pending = true
	for _, text := range wanted.AliasIPs {
		if err := q.alias(to, place, deref(text)); err != nil {
			return nil, err
		}
	}
	one.Nets = append(one.Nets, *place)
	return q.acted("attach_to_network", on(kindServer, one.ID), on(kindNetwork, to.ID)), nil
}

// alias adds an alias IP to a place that is not in the state yet.
func (c *Cloud) alias(in *network, place *attachment, text string) error {
	ip, err := netip.ParseAddr(text)
	inSubnet := slices.ContainsFunc(in.Subnets, func(part subnet) bool { return part.Range.Contains(ip) })
	if err != nil || !inSubnet {
		return invalid("alias_ips", "%q is not an address of the network's subnets", text)
	}
	if c.taken(in.ID)[ip] || ip == place.IP || ip == in.gateway() || slices.Contains(place.Aliases, ip) {
		return refuse("ip_not_available", "IP %v is not available in the network", ip)
	}
	place.Aliases = append(place.Aliases, ip)
	return nil
}

func detachServer(q *call, one *server, wanted schema.ServerActionDetachFromNetworkRequest) (any, error) {
	if one.attachment(wanted.Network) == nil {
		return nil, invalid("network", "the server is not attached to network %d", wanted.Network)
	}
	one.detach(wanted.Network)
	return q.acted("detach_from_network", on(kindServer, one.ID), on(kindNetwork, wanted.Network)), nil
}

func changeAliasIPs(q *call, one *server, wanted schema.ServerActionChangeAliasIPsRequest) (any, error) {
	place := one.attachment(wanted.Network)
	if place == nil {
		return nil, invalid("network", "the server is not attached to network %d", wanted.Network)
	}
	before := place.Aliases
	place.Aliases = nil
	for _, text := range wanted.AliasIPs {
		if err := q.alias(q.state.Networks[wanted.Network], place, text); err != nil {
			place.Aliases = before
			return nil, err
		}
	}
	return q.acted("change_alias_ips", on(kindServer, one.ID), on(kindNetwork, wanted.Network)), nil
}

func changeServerDNS(q *call, one *server) (any, error) {
	if err := q.changeDNS(q.addressOf(one.ID, "ipv4"), q.addressOf(one.ID, "ipv6")); err != nil {
		return nil, err
	}
	return q.acted("change_dns_ptr", on(kindServer, one.ID)), nil
}

func protectServer(q *call, one *server, wanted schema.ServerActionChangeProtectionRequest) (any, error) {
	deleting, rebuilding := one.Protected, one.NoRebuild
	if wanted.Delete != nil {
		deleting = *wanted.Delete
	}
	if wanted.Rebuild != nil {
		rebuilding = *wanted.Rebuild
	}
	if deleting != rebuilding {
		return nil, invalid("rebuild", "delete and rebuild protection of a server must be the same")
	}
	one.Protected, one.NoRebuild = deleting, rebuilding
	return q.acted("change_protection", on(kindServer, one.ID)), nil
}

// deref is what a pointer points to; the zero value for nil.
func deref[T any](pointer *T) T {
	if pointer == nil {
		var zero T
		return zero
	}
	return *pointer
}
