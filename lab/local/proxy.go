package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// headerTime is how long a client may take to send its request.
const headerTime = 10 * time.Second

// proxy connects what runs in the daemon's network with the Hetzner API and the clusters that are managed, by CONNECT,
// through the network's Dial.
type proxy struct {
	dial  netns.Dialer
	hosts func(context.Context) (map[string]bool, error) // addresses of the clusters that are managed, as they are now
	log   *slog.Logger

	mu       sync.Mutex
	refusals map[string]string // target → reason, of those that were logged
}

// serve serves the proxy on l, and the forwarders of loopback addresses, until ctx is done.
//
// Go's clients send no loopback address through a proxy. Workload clusters of a lab have such addresses; so every
// loopback address of this network forwards the ports of workload clusters to the same address of the host, if it is
// one of theirs.
func (p *proxy) serve(ctx context.Context, l net.Listener) (stop func(), err error) {
	log := p.log
	server := &http.Server{Handler: p, ReadHeaderTimeout: headerTime,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	closers := []io.Closer{server}
	stop = func() {
		for _, c := range closers {
			_ = c.Close() // listeners and connections of the daemon's own network
		}
	}
	for _, port := range workloadPorts {
		var config net.ListenConfig
		forwarder, err := config.Listen(ctx, "tcp4", net.JoinHostPort("0.0.0.0", port))
		if err != nil {
			stop()
			return nil, fmt.Errorf("forward port %s of workload clusters: %w", port, err)
		}
		closers = append(closers, forwarder)
		go p.forward(ctx, forwarder)
	}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the proxy ended", "reason", err)
		}
	}()
	return stop, nil
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "this proxy supports CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	if err := p.permit(r.Context(), r.Host); err != nil {
		p.record(r.Host, err)
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	to, err := p.dial(r.Context(), r.Host)
	if err != nil {
		p.record(r.Host, err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		to.Close()
		http.Error(w, "this proxy needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		to.Close()
		client.Close()
		return
	}
	tunnel.Join(context.WithoutCancel(r.Context()), client, buffered, to)
}

// forward connects the clients of a listener with the address that they connected to.
func (p *proxy) forward(ctx context.Context, l net.Listener) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // too many open files, which passes
		}
		go func() {
			target := client.LocalAddr().String()
			if to, err := netip.ParseAddrPort(target); err != nil || !to.Addr().IsLoopback() {
				client.Close()
				return
			}
			err := p.permit(ctx, target)
			var to net.Conn
			if err == nil {
				to, err = p.dial(ctx, target)
			}
			if err != nil {
				p.record(target, err)
				client.Close()
				return
			}
			tunnel.Join(ctx, client, client, to)
		}()
	}
}

// record logs a refusal, unless the last one of that target had the same reason.
func (p *proxy) record(target string, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusals[target] == reason.Error() {
		return
	}
	p.refusals[target] = reason.Error()
	p.log.Warn("a connection was refused", "target", target, "reason", reason)
}
