package kube

import (
	"crypto/sha256"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	// dialTimeout is short because a cluster that is there answers a connect at once; without it a vanished host
	// costs the kernel's two minutes.
	dialTimeout = 5 * time.Second
	// A connection on which nothing comes for pingAfter is asked for a sign of life, and closed where none comes within pingWithin:
	// a vanished API server behind a load balancer would hold every request on it otherwise. client-go's own are 30 s and 15 s.
	pingAfter, pingWithin = 5 * time.Second, 5 * time.Second
	// idleConnTimeout and tlsHandshakeTimeout are those of client-go.
	idleConnTimeout, tlsHandshakeTimeout = 90 * time.Second, 10 * time.Second
	// maxIdleConns is for API servers that speak HTTP/1.1 alone; HTTP/2 needs one connection.
	maxIdleConns = 25
)

// Connections keeps one Cluster for each kubeconfig. The zero value is ready for use, by several goroutines at once.
type Connections struct {
	mu       sync.Mutex
	clusters map[[sha256.Size]byte]*Cluster
}

// Connect returns the Cluster of a kubeconfig. wrap is the transport around the one that the kubeconfig makes, as in ConnectThrough;
// it counts when the Cluster is made.
func (c *Connections) Connect(kubeconfig []byte, wrap transport.WrapperFunc) (*Cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := sha256.Sum256(kubeconfig)
	if known := c.clusters[key]; known != nil {
		return known, nil
	}
	cluster, err := ConnectThrough(kubeconfig, wrap)
	if err != nil {
		return nil, err
	}
	if c.clusters == nil {
		c.clusters = map[[sha256.Size]byte]*Cluster{}
	}
	c.clusters[key] = cluster
	return cluster, nil
}

// ownTransport gives a configuration a transport of its own. client-go would keep the transport of every configuration that dials in
// its own way for the life of the process, with its connections. A kubeconfig whose credentials come from a plugin keeps client-go's:
// the plugin changes it.
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
	config.Transport = &http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: tlsHandshakeTimeout,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
		MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: idleConnTimeout, DisableCompression: config.DisableCompression,
	}
	config.TLSClientConfig = rest.TLSClientConfig{}
	return nil
}
