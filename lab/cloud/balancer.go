package cloud

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// balancer forwards the TCP connections of all load balancers. It does not depend on the API: apply gets the frontends.
type balancer struct {
	listen func(ctx context.Context, addr string) (net.Listener, error)
	log    *slog.Logger

	mu         sync.Mutex
	forwarders map[frontendKey]*forwarder
	ending     sync.WaitGroup // removed forwarders that still close
}

// frontendKey names one port of one load balancer.
type frontendKey struct {
	loadBalancer int64
	port         int
}

// frontend is the forwarding of a port.
type frontend struct {
	listen           []netip.Addr
	backends         []netip.Addr
	port             int // of the backends
	leastConnections bool
	check            probe
}

func newBalancer(listen func(context.Context, string) (net.Listener, error), log *slog.Logger) *balancer {
	return &balancer{listen: listen, log: log, forwarders: map[frontendKey]*forwarder{}}
}

// apply starts, changes and ends forwarders as wanted. It does not wait for ports to open or close.
func (b *balancer) apply(wanted map[frontendKey]frontend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, running := range b.forwarders {
		if _, ok := wanted[key]; !ok {
			delete(b.forwarders, key)
			b.ending.Go(running.close)
		}
	}
	for key, front := range wanted {
		running := b.forwarders[key]
		if running == nil {
			running = newForwarder(key, b.listen, b.log)
			b.forwarders[key] = running
		}
		running.update(front)
	}
}

// close ends all forwarding and waits until every port is closed.
func (b *balancer) close() {
	b.apply(nil)
	b.ending.Wait()
}

// health is the result of a backend's health check: healthy, unhealthy or unknown.
func (b *balancer) health(key frontendKey, ip netip.Addr) string {
	b.mu.Lock()
	running := b.forwarders[key]
	b.mu.Unlock()
	if running == nil {
		return healthUnknown
	}
	return running.health(ip)
}

// summary counts a port's backends, and says whether it listens.
func (b *balancer) summary(key frontendKey) (healthy, all int, listening bool) {
	b.mu.Lock()
	running := b.forwarders[key]
	b.mu.Unlock()
	if running == nil {
		return 0, 0, false
	}
	return running.summary()
}
