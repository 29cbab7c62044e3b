// Package netns runs the lab in its own network, so that its programs' addresses are isolated and conflict with
// nothing, while chosen addresses are exposed to the host.
//
// On Linux, Enter starts the calling program again in a user, network and PID namespace, which needs no privileges. The
// calling process stays in the host's network; it opens listening sockets on the host's loopback and passes them to the
// process inside (SCM_RIGHTS): a socket stays in the network in which it was created, whichever process has it. So one
// process accepts connections of both networks without a relay. When the first process of the PID namespace ends, the
// kernel ends all others.
//
// If the system refuses namespaces or has none, the lab runs on the host's loopback, and Network.Isolation says so.
package netns

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// insideVar marks the process inside; its value is the process id of the one on the host.
const insideVar = "SLIPWAY_LAB_OUTER_PID"

// Network is where the lab listens. Only addresses in 127.0.0.0/8 are accepted.
type Network interface {
	// Listen listens on a TCP address, "127.65.0.1:8080", for the host and for the lab's programs.
	Listen(ctx context.Context, addr string) (net.Listener, error)
	// Expose exposes to the host an address on which one of the lab's programs listens. Before, connections of the host
	// are closed immediately. Close ends that; open connections continue.
	Expose(ctx context.Context, addr string) (io.Closer, error)
	// Dial connects to a TCP address from the host's network, with the Dialer that Enter was given.
	Dial(ctx context.Context, addr string) (net.Conn, error)
	// Isolation describes how the lab's network is isolated from the host's.
	Isolation() string
	// Own says whether the lab has a network namespace of its own, in which any address may be used.
	Own() bool
	// Listeners returns the addresses that the host sees, sorted.
	Listeners() []string
	// PID is the process to end, as the host numbers it, to end the lab.
	PID() int
}

// Dialer connects to a TCP address, on the host. It decides what may be reached. The connection has to be a socket of
// its own, as *net.TCPConn is.
type Dialer func(ctx context.Context, addr string) (net.Conn, error)

// Inside says whether this process is the one inside, or is to become it by Enter.
func Inside() bool { return os.Getenv(insideVar) != "" }

// ExitError is what Enter returns on the host when the process inside has failed. That process has printed the reason.
type ExitError struct {
	Code   int // exit code; -1 when a signal ended it
	Reason string
}

func (e *ExitError) Error() string { return "the lab's inner process ended: " + e.Reason }

// checkAddr refuses everything but an explicit loopback address with a port; 0 has the system choose one.
func checkAddr(addr string) error {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", addr, err)
	}
	if !a.Addr().Is4() || !a.Addr().IsLoopback() {
		return fmt.Errorf("listen on %s: the lab listens in 127.0.0.0/8 only", addr)
	}
	return nil
}

// hostNetwork is the host's loopback.
type hostNetwork struct {
	registry
	dial      Dialer
	isolation string
	pid       int
}

func (n *hostNetwork) Listen(ctx context.Context, addr string) (net.Listener, error) {
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", addr)
	if err != nil {
		return nil, err
	}
	n.add(l.Addr().String())
	return &registered{Listener: l, registry: &n.registry}, nil
}

// Expose does nothing: there is no separate network.
func (n *hostNetwork) Expose(_ context.Context, addr string) (io.Closer, error) {
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	n.add(addr)
	return closer(func() error { n.remove(addr); return nil }), nil
}

func (n *hostNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return n.dial.connect(ctx, addr)
}

// connect calls the dialer; nil reaches nothing.
func (d Dialer) connect(ctx context.Context, addr string) (net.Conn, error) {
	if d == nil {
		return nil, fmt.Errorf("connect to %s: there is no way out of this network", addr)
	}
	return d(ctx, addr)
}

func (n *hostNetwork) Isolation() string { return n.isolation }

func (n *hostNetwork) Own() bool { return false }

func (n *hostNetwork) PID() int { return n.pid }

// registry records what is exposed to the host.
type registry struct {
	mu    sync.Mutex
	addrs []string
}

func (r *registry) add(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs = append(r.addrs, addr)
}

func (r *registry) remove(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.addrs, addr); i >= 0 {
		r.addrs = slices.Delete(r.addrs, i, i+1)
	}
}

// Listeners returns the addresses that the host sees, sorted.
func (r *registry) Listeners() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs := slices.Clone(r.addrs)
	slices.Sort(addrs)
	return addrs
}

// registered is a listener that leaves the registry when it is closed.
type registered struct {
	net.Listener
	registry *registry
	once     sync.Once
}

func (l *registered) Close() error {
	l.once.Do(func() { l.registry.remove(l.Addr().String()) })
	return l.Listener.Close()
}

type closer func() error

func (c closer) Close() error { return c() }
