package cloud

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errVanished is returned if a server was removed before its machine started.
var errVanished = errors.New("the server does not exist any more")

// machineLock keeps the promise of Machine that there is one call at a time for each server. It
// returns what ends the turn. It is never taken while mu is held.
func (c *Cloud) machineLock(id int64) (unlock func()) {
	lock, _ := c.turns.LoadOrStore(id, new(sync.Mutex))
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

// start starts a machine, unless its server vanished before it was its turn.
func (c *Cloud) start(ctx context.Context, seen Server) error {
	defer c.machineLock(seen.ID)()
	c.mu.Lock()
	_, there := c.state.Servers[seen.ID]
	c.mu.Unlock()
	if !there {
		return errVanished
	}
	return c.config.Machine.Start(ctx, seen)
}

func (c *Cloud) stop(ctx context.Context, id int64, hard bool) error {
	defer c.machineLock(id)()
	return c.config.Machine.Stop(ctx, id, hard)
}

func (c *Cloud) destroy(ctx context.Context, id int64) error {
	defer c.machineLock(id)()
	return c.config.Machine.Delete(ctx, id)
}

// boot starts a machine, or has a slow-boot fault start it later.
func (c *Cloud) boot(ctx context.Context, seen Server) error {
	delay := c.faults.boot(seen.Name)
	if delay == 0 {
		return c.start(ctx, seen)
	}
	c.config.Log.Info("a fault hits", "fault", FaultSlowBoot, "server", seen.Name, "delay", delay)
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
		if err := c.start(c.ctx, seen); err != nil {
			c.config.Log.Warn("a slow simulated machine did not start", "server", seen.Name, "error", err)
		}
	})
	return nil
}

// PoweredOff records that a server's system has shut the server down. It is ignored if the server is not running: then
// an action is changing it.
func (c *Cloud) PoweredOff(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.state.Servers[id]; one != nil && one.Status == statusRunning {
		one.Status = statusOff
		c.keep()
	}
}

// VanishServer removes a server without any request, as a failed host does: its machine and its record.
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
	return c.destroy(ctx, one.ID)
}
