package rescue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/cloud"
)

// Config configures all rescue systems of a lab.
type Config struct {
	// Listen opens a listening socket on "address:port"; servers have no other way to listen.
	Listen func(ctx context.Context, addr string) (net.Listener, error)
	// Latency of simulated operations; the zero value means no delay.
	Latency Latency
	// PoweredOff is called when a system was asked to shut its server down. Optional.
	PoweredOff func(serverID int64)
	// Log, by default none.
	Log *slog.Logger
}

// Latency is how long operations take.
type Latency struct {
	Boot  time.Duration // from power on until SSH answers
	Write time.Duration // to download an image and write it to the disk
}

// FastLatency keeps a rehearsal short.
func FastLatency() Latency {
	return Latency{Boot: 500 * time.Millisecond, Write: 1500 * time.Millisecond}
}

// RealLatency is near to a small cloud server's. The figures are assumed from general
// experience, not measured for this project.
func RealLatency() Latency { return Latency{Boot: 25 * time.Second, Write: 45 * time.Second} }

// Rescue runs rescue systems. It is a cloud.Machine for servers that boot into one.
type Rescue struct {
	config Config

	mu      sync.Mutex
	systems map[int64]*system // by server, while they run
}

var _ cloud.Machine = (*Rescue)(nil)

// Why a system ends.
var (
	errStopped = errors.New("the server was stopped")
	errHalt    = errors.New("it was asked to shut down")
)

// New returns a Rescue without systems.
func New(config Config) *Rescue {
	if config.PoweredOff == nil {
		config.PoweredOff = func(int64) {}
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Rescue{config: config, systems: map[int64]*system{}}
}

// Start boots a server into the rescue system, in the background. It does nothing if the system runs.
func (r *Rescue) Start(_ context.Context, hardware cloud.Server) error {
	if !hardware.PublicIPv4.IsValid() {
		return fmt.Errorf("boot server %s into the rescue system: it has no public IPv4 address to answer on", hardware.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.systems[hardware.ID] != nil {
		return nil
	}
	s, ctx, err := newSystem(r.config, hardware)
	if err != nil {
		return fmt.Errorf("boot server %s into the rescue system: %w", hardware.Name, err)
	}
	r.systems[hardware.ID] = s
	go func() {
		s.run(ctx)
		r.mu.Lock()
		delete(r.systems, hardware.ID)
		r.mu.Unlock()
		close(s.ended)
		if cause := context.Cause(ctx); errors.Is(cause, errHalt) {
			r.config.PoweredOff(hardware.ID)
		}
	}()
	return nil
}

// Stop ends a server's rescue system, at once in either case: it has nothing to lose.
func (r *Rescue) Stop(ctx context.Context, serverID int64, _ bool) error {
	s := r.system(serverID)
	if s == nil {
		return nil
	}
	s.end(errStopped)
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the rescue system of server %d: %w", serverID, ctx.Err())
	}
}

// Delete is Stop: there is no disk.
func (r *Rescue) Delete(ctx context.Context, serverID int64) error {
	return r.Stop(ctx, serverID, true)
}

// AddressesChanged has nothing to do: the system answers on the public address, which stays.
func (r *Rescue) AddressesChanged(context.Context, cloud.Server) error { return nil }

// Activity is what the rescue system of a server does; empty if it does not run.
func (r *Rescue) Activity(serverID int64) string {
	if s := r.system(serverID); s != nil {
		return s.activity()
	}
	return ""
}

// Close ends all systems.
func (r *Rescue) Close(ctx context.Context) error {
	r.mu.Lock()
	ids := make([]int64, 0, len(r.systems))
	for id := range r.systems {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, r.Stop(ctx, id, true))
	}
	return errors.Join(errs...)
}

func (r *Rescue) system(id int64) *system {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.systems[id]
}
