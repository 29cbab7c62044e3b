package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/plane"
)

// dialTimeout bounds a connection to an address of the lab, which either answers at once or not at all.
const dialTimeout = time.Second

func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// hostPort is the address and port of a kube-apiserver.
func hostPort(p *plane.Plane) string { return strings.TrimPrefix(p.Endpoint(), "https://") }

// forward connects every connection that l accepts to the one that connect returns, until l is closed or ctx is done.
func forward(ctx context.Context, l net.Listener, connect func(context.Context) (net.Conn, error)) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer from.Close()
			to, err := connect(ctx)
			if err != nil {
				return // a closed connection is how a port without a server behind it answers
			}
			defer to.Close()
			stop := context.AfterFunc(ctx, func() {
				from.Close()
				to.Close()
			})
			defer stop()
			var both sync.WaitGroup
			both.Go(func() { pipe(to, from) })
			both.Go(func() { pipe(from, to) })
			both.Wait()
		})
	}
}

// pipe copies until src ends, and half-closes dst.
func pipe(dst, src net.Conn) {
	_, _ = io.Copy(dst, src) // either end of a connection ends both
	if c, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
		return
	}
	dst.Close()
}

// closedListener takes the place of a socket that another listener already has.
type closedListener struct{}

func (closedListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closedListener) Close() error              { return nil }
func (closedListener) Addr() net.Addr            { return &net.TCPAddr{} }

// serveKubePrism serves the Kubernetes API on this server, through any kube-apiserver that answers: this server's own,
// another of the cluster, or the endpoint. A real one listens on 127.0.0.1, which servers of a lab share; here it is
// the node's address. It serves until ctx is done, and has closed its port when stop returns.
func (y *system) serveKubePrism(ctx context.Context, node netip.Addr, port int) (stop func(), err error) {
	l, err := y.talos.config.Listen(ctx, withPort(node, port))
	if err != nil {
		return nil, fmt.Errorf("KubePrism: listen on %s: %w", withPort(node, port), err)
	}
	go forward(ctx, l, y.dialAPI)
	return func() { l.Close() }, nil
}

// dialAPI connects to the first kube-apiserver of the cluster that answers.
func (y *system) dialAPI(ctx context.Context) (net.Conn, error) {
	var candidates []string
	if p, _ := y.plane.get(); p != nil {
		candidates = append(candidates, hostPort(p))
	}
	others, _ := y.talos.discovery.others(y.cluster, y.id)
	for _, a := range others {
		if a.apiServer != "" {
			candidates = append(candidates, a.apiServer)
		}
	}
	if endpoint := y.config.Cluster().Endpoint(); isLoopback(endpoint.Hostname()) {
		candidates = append(candidates, endpoint.Host)
	}
	err := errors.New("no kube-apiserver of the cluster is known, and the endpoint is outside of the lab's network")
	for _, addr := range candidates {
		var conn net.Conn
		if conn, err = dial(ctx, addr); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// isLoopback says whether a host is an address of the lab's network. Names are not looked up.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
