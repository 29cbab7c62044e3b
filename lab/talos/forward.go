package talos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// dialTimeout bounds a connection to an address of the lab, which either answers at once or not at all.
const dialTimeout = time.Second

func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// hostPort is the address and port of a kube-apiserver.
func hostPort(p *plane.Plane) string { return strings.TrimPrefix(p.Endpoint(), "https://") }

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
	go tunnel.Serve(ctx, l, y.dialAPI)
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
