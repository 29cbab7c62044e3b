package cloud

import (
	"context"
	"net/netip"
	"slices"
	"time"

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
		"rebuild":                     rebuild,
		"change_type":                 changeServerType,
		"create_image":                createImage,
		"enable_rescue":               enableRescue,
		"disable_rescue":              disableRescue,
		"attach_to_network":           attachServer,
		"detach_from_network":         detachServer,
		"change_alias_ips":            changeAliasIPs,
		"add_to_placement_group":      addToPlacementGroup,
		"remove_from_placement_group": removeFromPlacementGroup,
		"change_dns_ptr":              changeServerDNS,
		"change_protection":           protectServer,
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

// power makes a command that a server must be on for; one that is off is left as it is.
func power(action, meanwhile string) func(*call, *server) (any, error) {
	return func(q *call, one *server) (any, error) {
		if one.Status == statusRunning {
			one.Status = meanwhile
		}
		return q.acted(action, on(kindServer, one.ID)), nil
	}
}

// serverEffects are what the actions on servers do at their end.
func (c *Cloud) serverEffects() map[string]func(*action) effect {
	effects := map[string]func(*server) effect{
		"create_server": c.endCreate,
		"start_server":  c.endStart,
		"stop_server":   func(one *server) effect { return c.endStop(one, true) },
		"shutdown_server": func(one *server) effect {
			return c.endStop(one, false)
		},
		"reboot_server":       func(one *server) effect { return c.endRestart(one, false) },
		"reset_server":        func(one *server) effect { return c.endRestart(one, true) },
		"rebuild_server":      c.endRebuild,
		"delete_server":       c.endDelete,
		"attach_to_network":   c.endAttach,
		"detach_from_network": c.endAttach,
		"change_alias_ips":    c.endAttach,
	}
	keyed := make(map[string]func(*action) effect, len(effects))
	for command, prepare := range effects {
		keyed[command] = func(a *action) effect {
			for _, resource := range a.Resources {
				if one := c.state.Servers[resource.ID]; one != nil && resource.Type == kindServer {
					return prepare(one)
				}
			}
			return effect{} // it vanished, or the action is a load balancer's
		}
	}
	return keyed
}

// endCreate makes the server complete; one whose creation fails is taken back (assumed).
func (c *Cloud) endCreate(one *server) effect {
	return effect{done: func(failed bool) {
		if failed {
			c.forget(one)
			return
		}
		one.Status = statusOff
		for i := range one.Nets {
			one.Nets[i].Pending = false
		}
		for _, next := range c.state.Actions {
			if next.Status == actionRunning && next.Command == "start_server" && next.concerns(kindServer, one.ID) {
				one.Status = statusStarting
			}
		}
	}}
}

func (c *Cloud) endStart(one *server) effect {
	if one.Status == statusRunning {
		return effect{}
	}
	seen := c.machineView(one)
	seen.Status = statusRunning
	return effect{
		work: func(ctx context.Context) error { return c.boot(ctx, seen) },
		done: func(failed bool) {
			one.Status, one.Rescue = statusRunning, false // the rescue system is for one boot
			if failed {
				one.Status = statusOff
			}
		},
	}
}

// boot starts a machine, or has a slow-boot fault start it later.
func (c *Cloud) boot(ctx context.Context, seen Server) error {
	delay := c.faults.boot(seen.Name)
	if delay == 0 {
		return c.config.Machine.Start(ctx, seen)
	}
	c.background.Go(func() {
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(delay):
		}
		c.mu.Lock()
		one := c.state.Servers[seen.ID]
		stillOn := one != nil && one.Status == statusRunning
		c.mu.Unlock()
		if !stillOn {
			return
		}
		if err := c.config.Machine.Start(c.ctx, seen); err != nil {
			c.config.Log.Warn("a slow simulated machine did not start", "server", seen.Name, "error", err)
		}
	})
	return nil
}

func (c *Cloud) endStop(one *server, hard bool) effect {
	id, was := one.ID, one.Status
	if was == statusOff {
		return effect{}
	}
	return effect{
		work: func(ctx context.Context) error { return c.config.Machine.Stop(ctx, id, hard) },
		done: func(failed bool) {
			one.Status = statusOff
			if failed {
				one.Status = statusRunning
			}
		},
	}
}

func (c *Cloud) endRestart(one *server, hard bool) effect {
	if one.Status != statusRunning {
		return effect{}
	}
	seen := c.machineView(one)
	return effect{
		work: func(ctx context.Context) error {
			if err := c.config.Machine.Stop(ctx, seen.ID, hard); err != nil {
				return err
			}
			return c.boot(ctx, seen)
		},
		done: func(failed bool) {
			one.Rescue = false
			if failed {
				one.Status = statusOff
			}
		},
	}
}

// endRebuild gives the server a new disk and starts it.
func (c *Cloud) endRebuild(one *server) effect {
	seen := c.machineView(one)
	seen.Status = statusRunning
	return effect{
		work: func(ctx context.Context) error {
			if err := c.config.Machine.Delete(ctx, seen.ID); err != nil {
				return err
			}
			return c.boot(ctx, seen)
		},
		done: func(failed bool) {
			one.Status = statusRunning
			if failed {
				one.Status = statusOff
			}
		},
	}
}

func (c *Cloud) endDelete(one *server) effect {
	id := one.ID
	return effect{
		work: func(ctx context.Context) error { return c.config.Machine.Delete(ctx, id) },
		done: func(failed bool) {
			if failed {
				one.Status = statusOff
				return
			}
			c.forget(one)
		},
	}
}

// endAttach shows new addresses, and tells a running machine about them.
func (c *Cloud) endAttach(one *server) effect {
	for i := range one.Nets {
		one.Nets[i].Pending = false
	}
	if one.Status != statusRunning {
		return effect{}
	}
	seen := c.machineView(one)
	return effect{work: func(ctx context.Context) error { return c.config.Machine.AddressesChanged(ctx, seen) }}
}

func resetPassword(q *call, one *server) (any, error) {
	action := q.begin("reset_password", on(kindServer, one.ID))
	return map[string]any{"action": action.view(), "root_password": newPassword()}, nil
}

func rebuild(q *call, one *server) (any, error) {
	var wanted schema.ServerActionRebuildRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
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

func changeServerType(q *call, one *server) (any, error) {
	var wanted schema.ServerActionChangeTypeRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
	was := q.serverTypeOf(one)
	kind, ok := byIDOrName(q.catalog.serverTypes, wanted.ServerType.ID, wanted.ServerType.Name)
	switch {
	case !ok:
		return nil, invalid("server_type", "server type %q not found", idOrNameText(wanted.ServerType))
	case one.Status != statusOff:
		return nil, refuse("server_not_stopped", "the server must be stopped to change its type")
	case kind.architecture != was.architecture || kind.disk < one.Disk:
		return nil, refuse("invalid_server_type", "server type %s has another architecture or too small a disk", kind.Name)
	case q.faults.soldOut(kind.Name, one.Location):
		return nil, refuse("resource_unavailable", "error during placement")
	}
	one.Type = kind.ID
	if wanted.UpgradeDisk {
		one.Disk = kind.disk
	}
	return q.acted("change_server_type", on(kindServer, one.ID)), nil
}

func enableRescue(q *call, one *server) (any, error) {
	var wanted schema.ServerActionEnableRescueRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
	if wanted.Type != nil && *wanted.Type != "linux64" {
		return nil, invalid("type", "%q is no rescue system: it is linux64", *wanted.Type)
	}
	for _, id := range wanted.SSHKeys {
		if q.state.SSHKeys[id] == nil {
			return nil, invalid("ssh_keys", "SSH key with ID '%d' not found", id)
		}
	}
	one.Rescue = true
	action := q.begin("enable_rescue", on(kindServer, one.ID))
	return map[string]any{"action": action.view(), "root_password": newPassword()}, nil
}

func disableRescue(q *call, one *server) (any, error) {
	one.Rescue = false
	return q.acted("disable_rescue", on(kindServer, one.ID)), nil
}

func attachServer(q *call, one *server) (any, error) {
	var wanted schema.ServerActionAttachToNetworkRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
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

func detachServer(q *call, one *server) (any, error) {
	var wanted schema.ServerActionDetachFromNetworkRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
	if one.attachment(wanted.Network) == nil {
		return nil, invalid("network", "the server is not attached to network %d", wanted.Network)
	}
	one.detach(wanted.Network)
	return q.acted("detach_from_network", on(kindServer, one.ID), on(kindNetwork, wanted.Network)), nil
}

func changeAliasIPs(q *call, one *server) (any, error) {
	var wanted schema.ServerActionChangeAliasIPsRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
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

func protectServer(q *call, one *server) (any, error) {
	var wanted schema.ServerActionChangeProtectionRequest
	if err := q.decode(&wanted); err != nil {
		return nil, err
	}
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

// VanishServer makes a server disappear without any request, as a failed host does: its machine is
// gone, and so is its record.
func (c *Cloud) VanishServer(ctx context.Context, name string) error {
	c.mu.Lock()
	one, ok := byIDOrName(c.state.Servers, 0, name)
	if !ok {
		c.mu.Unlock()
		return refuse("not_found", "making a server vanish: there is no server %q", name)
	}
	c.forget(one)
	c.keep()
	c.mu.Unlock()
	return c.config.Machine.Delete(ctx, one.ID)
}
