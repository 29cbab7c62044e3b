package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
)

const (
	// dialTimeout is short because a cluster that is there answers a connect at once; without it a vanished host
	// costs the kernel's two minutes.
	dialTimeout = 5 * time.Second
	// A connection on which nothing comes for pingAfter is asked for a sign of life, and closed where none comes within
	// pingWithin: a vanished API server behind a load balancer would hold every request on it otherwise. client-go's own
	// are 30 s and 15 s.
	pingAfter, pingWithin = 5 * time.Second, 5 * time.Second
	// idleConnTimeout and tlsHandshakeTimeout are those of client-go.
	idleConnTimeout, tlsHandshakeTimeout = 90 * time.Second, 10 * time.Second
	// maxIdleConns is for API servers that speak HTTP/1.1 alone; HTTP/2 needs one connection.
	maxIdleConns = 25
	// leftFor is how long the request for which a connection was given up may take to be off it.
	leftFor = time.Second
)

// Connections keeps one Cluster for each kubeconfig, for several goroutines at once.
type Connections struct {
	// Wrap makes the transport around the one that a kubeconfig makes, of every client of the cluster, Helm's too. It
	// is called when the Cluster is made, after the kubeconfig was accepted. nil: there is none.
	Wrap func(kubeconfig []byte, trusted bool) transport.WrapperFunc

	mu       sync.Mutex
	clusters map[connectionKey]*Cluster
}

// connectionKey keeps apart what was made of a kubeconfig that was trusted, and of the same one that was not.
type connectionKey struct {
	sum     [sha256.Size]byte
	trusted bool
}

// Connect returns the Cluster of a kubeconfig.
func (c *Connections) Connect(data []byte) (*Cluster, error) { return c.open(data, false) }

// ConnectTrusted is Connect for a kubeconfig that the operator named, or that this process made.
func (c *Connections) ConnectTrusted(data []byte) (*Cluster, error) { return c.open(data, true) }

func (c *Connections) open(data []byte, trusted bool) (*Cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := connectionKey{sha256.Sum256(data), trusted}
	if known := c.clusters[key]; known != nil {
		return known, nil
	}
	if !trusted {
		if _, err := kubeconfig.Accept(data); err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
	}
	var wrap transport.WrapperFunc
	if c.Wrap != nil {
		wrap = c.Wrap(data, trusted)
	}
	cluster, err := connect(data, wrap)
	if err != nil {
		return nil, err
	}
	if c.clusters == nil {
		c.clusters = map[connectionKey]*Cluster{}
	}
	c.clusters[key] = cluster
	return cluster, nil
}

// ownTransport gives a configuration a transport of its own. client-go would keep the transport of every configuration
// that dials in its own way for the life of the process, with its connections. A kubeconfig whose credentials come from
// a plugin keeps client-go's: the plugin changes it.
func ownTransport(config *rest.Config) error {
	dial := (&net.Dialer{Timeout: dialTimeout}).DialContext
	if config.ExecProvider != nil || config.AuthProvider != nil {
		config.Dial = dial
		return nil
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	proxy := http.ProxyFromEnvironment
	if config.Proxy != nil {
		proxy = config.Proxy
	}
	config.Transport = &renewed{current: &http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: tlsHandshakeTimeout,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
		MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: idleConnTimeout, DisableCompression: config.DisableCompression,
	}}
	config.TLSClientConfig = rest.TLSClientConfig{}
	return nil
}

// renewed is a transport that opens another connection after a request that was not answered in time, or with an error
// of the API server's own. A load balancer ties a connection to one API server for as long as the connection is open.
// Where the etcd behind that one has no leader, it answers pings and no request, while another API server of the
// cluster would answer all of them.
type renewed struct {
	mu      sync.Mutex
	current *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (r *renewed) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	t := r.current
	r.mu.Unlock()
	resp, err := t.RoundTrip(req)
	if err != nil && errors.Is(req.Context().Err(), context.DeadlineExceeded) || err == nil &&
		resp.StatusCode >= http.StatusInternalServerError {
		r.leave(t)
	}
	return resp, err
}

// leave has the next request open a connection. Requests that are under way, such as watches, keep theirs.
func (r *renewed) leave(t *http.Transport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != t {
		return // another request has found the same
	}
	r.current = t.Clone()
	time.AfterFunc(leftFor, t.CloseIdleConnections)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (r *renewed) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.CloseIdleConnections()
}

// longestRetryAfter is the longest Retry-After of an answer whose request client-go repeats, and retryAfter the pause
// that it then makes. An API server with too much to do answers with one second; one that has just started, and does not
// know all its paths yet, with five (k8s.io/apiserver, pkg/util/notfoundhandler).
const (
	longestRetryAfter = 5 * time.Second
	retryAfter        = time.Second
)

// boundedRetryAfter shortens the Retry-After of answers, and removes a longer one: client-go would repeat the request up
// to ten times before it returns the error. A list whose objects a conversion webhook does not convert is answered with
// 30 seconds, and with the reason.
type boundedRetryAfter struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b *boundedRetryAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	const header = "Retry-After"
	seconds, err := strconv.Atoi(resp.Header.Get(header))
	switch wait := time.Duration(seconds) * time.Second; {
	case err != nil || wait <= retryAfter:
	case wait > longestRetryAfter:
		resp.Header.Del(header)
	default:
		resp.Header.Set(header, strconv.Itoa(int(retryAfter.Seconds())))
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find what this is around.
func (b *boundedRetryAfter) WrappedRoundTripper() http.RoundTripper { return b.next }
