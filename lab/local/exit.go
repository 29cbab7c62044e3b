package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/lab/netns"
)

// Ports of a workload cluster that the controllers connect to.
const (
	kubernetesPort = "6443"
	talosPort      = "50000"
)

// workloadPorts are the ports of workload clusters that may be reached. At which addresses, the proxy decides, which
// reads the clusters' objects.
var workloadPorts = []string{kubernetesPort, talosPort}

// hetznerAPI is the one other target.
const hetznerAPI = "api.hetzner.cloud:443"

// dialTime bounds the time to connect, that of a proxy included.
const dialTime = 30 * time.Second

// proxyFor returns the proxy for a target, of HTTPS_PROXY and NO_PROXY, as Go's HTTP clients do; nil: there is none.
type proxyFor func(target string) (*url.URL, error)

func environmentProxy(target string) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: target}})
}

// NewDialer returns the only way out of a local management cluster: to the Hetzner API, and to the Kubernetes and Talos
// APIs of workload clusters. It goes through the proxy of HTTPS_PROXY where the environment has one.
func NewDialer() netns.Dialer { return newDialer(environmentProxy) }

func newDialer(proxy proxyFor) netns.Dialer {
	return func(ctx context.Context, target string) (net.Conn, error) {
		if err := allowed(target); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		through, err := proxy(target)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: HTTPS_PROXY: %w", target, withoutURL(err))
		}
		var dialer net.Dialer
		if through == nil {
			return dialer.DialContext(ctx, "tcp", target)
		}
		conn, err := connectThrough(ctx, &dialer, through, target)
		if err != nil {
			return nil, fmt.Errorf("connect to %s through the proxy %s: %w", target, through.Host, err)
		}
		return conn, nil
	}
}

// withoutURL leaves out what a malformed URL says: it may hold a password.
func withoutURL(err error) error {
	var malformed *url.Error
	if errors.As(err, &malformed) {
		return malformed.Err
	}
	return errors.New("it is not the URL of a proxy")
}

// allowed refuses every target that a management cluster has no business with.
func allowed(target string) error {
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return fmt.Errorf("connect to %q: want host:port", target)
	}
	if target == hetznerAPI || slices.Contains(workloadPorts, port) {
		return nil
	}
	return fmt.Errorf("connect to %s: a local management cluster reaches %s, and ports %s (Kubernetes) and %s (Talos) of "+
		"workload clusters, and nothing else", target, hetznerAPI, kubernetesPort, talosPort)
}

// connectThrough opens a tunnel through an HTTP proxy.
func connectThrough(ctx context.Context, dialer *net.Dialer, proxy *url.URL, target string) (_ net.Conn, err error) {
	if proxy.Scheme != "http" {
		return nil, fmt.Errorf("a proxy of scheme %q is not supported: want http", proxy.Scheme)
	}
	address := proxy.Host
	if proxy.Port() == "" {
		address = net.JoinHostPort(proxy.Hostname(), "80")
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		asBasic := &http.Request{Header: http.Header{}}
		asBasic.SetBasicAuth(user.Username(), password)
		request.Header.Set("Proxy-Authorization", asBasic.Header.Get("Authorization"))
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	reply, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 500))
		return nil, fmt.Errorf("it answers %s: %s", reply.Status, text)
	}
	if reader.Buffered() > 0 { // the socket alone is handed on, and would lack these bytes
		return nil, errors.New("it sent data before the client did")
	}
	return conn, nil
}
