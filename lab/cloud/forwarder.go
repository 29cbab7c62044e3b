package cloud

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// The states of a backend, in the API's words.
const (
	healthUnknown   = "unknown"
	healthHealthy   = "healthy"
	healthUnhealthy = "unhealthy"
)

// connectTimeout bounds how long a client waits for one backend; all of them are on loopback.
const connectTimeout = 3 * time.Second

// forwarder is one port of one load balancer. While no backend is healthy its listeners are closed, so that clients are
// refused immediately: a client whose connection is accepted and dropped may wait for a long time before it retries.
type forwarder struct {
	key    frontendKey
	open   func(ctx context.Context, addr string) (net.Listener, error)
	log    *slog.Logger
	ctx    context.Context // ends with the forwarder
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	front     frontend
	backends  map[netip.Addr]*backend
	turn      int // round robin
	listening bool

	settling  sync.Mutex // before mu
	listeners map[netip.Addr]net.Listener
}

// backend is one target of a port.
type backend struct {
	ip       netip.Addr
	ctx      context.Context // ends when the target is removed, and its connections with it
	cancel   context.CancelFunc
	unwatch  context.CancelFunc
	status   string
	failures int
	active   int // connections
}

func newForwarder(key frontendKey, open func(
	context.Context, string,
) (net.Listener, error), log *slog.Logger) *forwarder {
	ctx, cancel := context.WithCancel(context.Background())
	return &forwarder{
		key: key, open: open, log: log, ctx: ctx, cancel: cancel,
		backends: map[netip.Addr]*backend{}, listeners: map[netip.Addr]net.Listener{},
	}
}

// update applies a changed frontend.
func (f *forwarder) update(front frontend) {
	f.mu.Lock()
	defer f.mu.Unlock()
	relisten := !slices.Equal(f.front.listen, front.listen)
	recheck := f.front.check != front.check
	f.front = front
	for ip, gone := range f.backends {
		if !slices.Contains(front.backends, ip) {
			gone.cancel()
			delete(f.backends, ip)
			relisten = true
		}
	}
	for _, ip := range front.backends {
		known := f.backends[ip]
		if known != nil && !recheck {
			continue
		}
		if known == nil {
			known = &backend{ip: ip, status: healthUnknown}
			known.ctx, known.cancel = context.WithCancel(f.ctx)
			f.backends[ip] = known
		} else {
			known.unwatch()
		}
		var watching context.Context
		watching, known.unwatch = context.WithCancel(known.ctx)
		f.tasks.Go(func() { f.watch(watching, known, front.check) })
	}
	if relisten {
		f.tasks.Go(f.settle)
	}
}

// close ends the forwarder with all its connections.
func (f *forwarder) close() {
	f.cancel()
	f.settle()
	f.tasks.Wait()
}

// watch checks a backend's health until ctx ends.
func (f *forwarder) watch(ctx context.Context, one *backend, check probe) {
	for {
		healthy := check.passes(ctx, one.ip)
		if ctx.Err() != nil {
			return
		}
		f.report(one, healthy, check.retries)
		f.settle()
		select {
		case <-ctx.Done():
			return
		case <-time.After(check.interval):
		}
	}
}

// report counts a health check: one success makes a backend healthy, and as many failures in a row as the service's
// retries make a healthy one unhealthy.
func (f *forwarder) report(one *backend, healthy bool, retries int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if healthy {
		one.status, one.failures = healthHealthy, 0
		return
	}
	one.failures++
	if one.status != healthHealthy || one.failures >= retries {
		one.status = healthUnhealthy
	}
}

// settle opens and closes listeners until they are those that there should be. A port that cannot
// be opened is tried again after the next health check.
func (f *forwarder) settle() {
	f.settling.Lock()
	defer f.settling.Unlock()
	wanted := f.wantedListeners()
	for ip, listener := range f.listeners {
		if !slices.Contains(wanted, ip) {
			_ = listener.Close() // nothing can be done about a failure, and nothing waits for it
			delete(f.listeners, ip)
		}
	}
	for _, ip := range wanted {
		if f.listeners[ip] != nil {
			continue
		}
		address := net.JoinHostPort(ip.String(), strconv.Itoa(f.key.port))
		listener, err := f.open(f.ctx, address)
		if err != nil {
			f.log.Warn("a simulated load balancer cannot listen", "loadBalancer", f.key.loadBalancer, "address", address,
				"error", err)
			continue
		}
		f.listeners[ip] = listener
		f.tasks.Go(func() { f.accept(listener) })
	}
	f.mu.Lock()
	f.listening = len(f.listeners) > 0
	f.mu.Unlock()
}

// wantedListeners are the addresses to listen on now: none without a healthy backend.
func (f *forwarder) wantedListeners() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil || len(f.healthyBackends()) == 0 {
		return nil
	}
	return f.front.listen
}

func (f *forwarder) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed by settle
		}
		f.tasks.Go(func() { f.forward(client) })
	}
}

// forward connects a client to the first backend that takes it.
func (f *forwarder) forward(client net.Conn) {
	defer client.Close()
	dialer := net.Dialer{Timeout: connectTimeout}
	for _, candidate := range f.candidates() {
		f.mu.Lock()
		port := f.front.port
		f.mu.Unlock()
		upstream, err := dialer.DialContext(candidate.ctx, "tcp", netip.AddrPortFrom(candidate.ip, uint16(port)).String())
		if err != nil {
			continue
		}
		f.count(candidate, 1)
		tunnel.Join(candidate.ctx, client, client, upstream)
		f.count(candidate, -1)
		return
	}
}

func (f *forwarder) count(one *backend, change int) {
	f.mu.Lock()
	one.active += change
	f.mu.Unlock()
}

// candidates are the healthy backends in the order that the algorithm tries them.
func (f *forwarder) candidates() []*backend {
	f.mu.Lock()
	defer f.mu.Unlock()
	healthy := f.healthyBackends()
	if len(healthy) == 0 {
		return nil
	}
	f.turn++
	first := f.turn % len(healthy)
	healthy = append(healthy[first:], healthy[:first]...)
	if f.front.leastConnections {
		slices.SortStableFunc(healthy, func(a, b *backend) int { return cmp.Compare(a.active, b.active) })
	}
	return healthy
}

// healthyBackends are in the order of their addresses. The caller holds mu.
func (f *forwarder) healthyBackends() []*backend {
	var healthy []*backend
	for _, one := range f.backends {
		if one.status == healthHealthy {
			healthy = append(healthy, one)
		}
	}
	slices.SortFunc(healthy, func(a, b *backend) int { return a.ip.Compare(b.ip) })
	return healthy
}

func (f *forwarder) health(ip netip.Addr) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.backends[ip]; one != nil {
		return one.status
	}
	return healthUnhealthy // it has no address that the load balancer could reach
}

func (f *forwarder) summary() (healthy, all int, listening bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.healthyBackends()), len(f.backends), f.listening
}
