package cloud

import (
	"context"
	"slices"
)

// serverEffects are the effects of actions on servers.
func (c *Cloud) serverEffects() map[string]func(*action) effect {
	effects := map[string]func(*server) effect{
		"create_server":       c.endCreate,
		"start_server":        c.endStart,
		"stop_server":         func(one *server) effect { return c.endStop(one, true) },
		"shutdown_server":     func(one *server) effect { return c.endStop(one, false) },
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

// endCreate completes the server; one whose creation fails is removed (assumed).
func (c *Cloud) endCreate(one *server) effect {
	return effect{done: func(failed bool) {
		if failed {
			c.forget(one)
			return
		}
		one.Status = statusOff
		one.settleNets()
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
			one.Status = statusRunning
			one.leaveRescue() // it is for one boot
			if failed {
				one.Status = statusOff
			}
		},
	}
}

func (c *Cloud) endStop(one *server, hard bool) effect {
	id, was := one.ID, one.Status
	if was == statusOff {
		return effect{}
	}
	return effect{
		work: func(ctx context.Context) error { return c.stop(ctx, id, hard) },
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
			if err := c.stop(ctx, seen.ID, hard); err != nil {
				return err
			}
			return c.boot(ctx, seen)
		},
		done: func(failed bool) {
			one.leaveRescue()
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
			if err := c.destroy(ctx, seen.ID); err != nil {
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
		work: func(ctx context.Context) error { return c.destroy(ctx, id) },
		done: func(failed bool) {
			if failed {
				one.Status = statusOff
				return
			}
			c.forget(one)
		},
	}
}

// endAttach shows new addresses, and notifies a running machine.
func (c *Cloud) endAttach(one *server) effect {
	after := *one
	after.Nets = slices.Clone(one.Nets)
	after.settleNets()
	seen, running := c.machineView(&after), one.Status == statusRunning
	return effect{
		work: func(ctx context.Context) error {
			if !running {
				return nil
			}
			defer c.machineLock(seen.ID)()
			return c.config.Machine.AddressesChanged(ctx, seen)
		},
		done: func(failed bool) {
			if failed {
				one.Nets = slices.DeleteFunc(one.Nets, func(place attachment) bool { return place.Pending })
			}
			one.settleNets()
		},
	}
}

// settleNets makes the server's places in networks valid.
func (s *server) settleNets() {
	for i := range s.Nets {
		s.Nets[i].Pending = false
	}
}
