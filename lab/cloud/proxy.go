package cloud

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// apiHost is the host of the real API, for which the proxy answers.
const apiHost = "api.hetzner.cloud"

// Proxy is an HTTP proxy that answers CONNECT api.hetzner.cloud:443 itself, with a certificate of
// the given CA, and serves the API there. It connects to names that the machine's hosts file has at a loopback address,
// as that of a control plane endpoint. Every other target is refused: nothing leaves the machine.
func (c *Cloud) Proxy(ca *pki.CA) (http.Handler, error) {
	pair, err := ca.Issue(pki.Request{CommonName: apiHost, Hosts: []string{apiHost}})
	if err != nil {
		return nil, fmt.Errorf("making the simulated cloud's HTTPS proxy: %w", err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, fmt.Errorf("making the simulated cloud's HTTPS proxy: %w", err)
	}
	p := &proxy{
		ctx:     c.ctx,
		config:  &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}},
		tunnels: &tunnels{arrived: make(chan net.Conn), closed: make(chan struct{})},
	}
	server := &http.Server{
		Handler:           c.Handler(),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(c.config.Log.Handler(), slog.LevelDebug), // clients that do not trust the CA
	}
	// Serve ends with Close; its error then says only that.
	c.background.Go(func() { _ = server.Serve(p.tunnels) })
	c.background.Go(func() {
		<-c.ctx.Done()
		_ = server.Close()
	})
	return p, nil
}

type proxy struct {
	ctx     context.Context // of the cloud
	config  *tls.Config
	tunnels *tunnels
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "the lab's proxy takes only CONNECT "+apiHost+":443", http.StatusMethodNotAllowed)
		return
	}
	if address := hostsFileAddress(r.Context(), r.Host); r.Host != apiHost+":443" && address != "" {
		p.forward(w, r, address)
		return
	}
	if r.Host != apiHost+":443" {
		http.Error(w, fmt.Sprintf("the lab's proxy refuses %s: it answers for %s:443 only, and nothing leaves the machine",
			r.Host, apiHost), http.StatusForbidden)
		return
	}
	if conn := established(w); conn != nil {
		p.tunnels.hand(tls.Server(conn, p.config))
	}
}

// established takes over the connection of a CONNECT request and confirms it; nil where that fails.
func established(w http.ResponseWriter) net.Conn {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the lab's proxy cannot take over this connection: use HTTP/1.1", http.StatusInternalServerError)
		return nil
	}
	if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		_ = conn.Close()
		return nil
	}
	return &peeked{Conn: conn, reader: buffered.Reader}
}

// hostsFile resolves names by the machine's hosts file alone.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("the lab asks no name server")
}}

// hostsFileAddress is the loopback address and the port of a target whose name the hosts file has; empty: it has not.
func hostsFileAddress(ctx context.Context, target string) string {
	host, port, err := net.SplitHostPort(target)
	if err != nil || net.ParseIP(host) != nil {
		return ""
	}
	addresses, err := hostsFile.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		if a.Unmap().IsLoopback() {
			return net.JoinHostPort(a.Unmap().String(), port)
		}
	}
	return ""
}

// forward connects a client to an address, until either side ends.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request, address string) {
	backend, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		http.Error(w, fmt.Sprintf("the lab's proxy cannot reach %s at %s: %v", r.Host, address, err), http.StatusBadGateway)
		return
	}
	client := established(w)
	if client == nil {
		_ = backend.Close()
		return
	}
	tunnel.Join(p.ctx, client, client, backend)
}

// peeked is a connection whose first bytes may already wait in a buffer.
type peeked struct {
	net.Conn
	reader *bufio.Reader
}

func (p *peeked) Read(into []byte) (int, error) { return p.reader.Read(into) }

// tunnels is the listener of connections that arrive through the proxy.
type tunnels struct {
	arrived chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// hand passes a connection to the server, or closes it if the server has ended.
func (t *tunnels) hand(conn net.Conn) {
	select {
	case t.arrived <- conn:
	case <-t.closed:
		_ = conn.Close()
	}
}

func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case conn := <-t.arrived:
		return conn, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

func (t *tunnels) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

func (t *tunnels) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "tunnel" }
func (tunnelAddr) String() string  { return apiHost + ":443" }
