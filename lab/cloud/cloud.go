package cloud

import (
	"context"
	"crypto/tls"
	"net/http"
)

// Cloud is one simulated project of the Hetzner Cloud.
type Cloud struct {
	config Config
}

// New reads the state in config.Dir, or begins an empty project. Nothing runs before Resume.
func New(config Config) (*Cloud, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Cloud{config: config}, nil
}

// Resume takes up the work of the state that New read: it starts the machines of running servers,
// opens the load balancers' ports and goes on with unfinished actions.
func (c *Cloud) Resume(ctx context.Context) error { return nil }

// Close ends everything that the Cloud does by itself and closes the load balancers. Machines are
// left to their owner.
func (c *Cloud) Close() error { return nil }

// Handler serves the API under /v1.
func (c *Cloud) Handler() http.Handler { return http.NotFoundHandler() }

// Proxy is an HTTP proxy that answers CONNECT api.hetzner.cloud:443 itself, with a certificate of
// the given CA, and refuses every other target.
func (c *Cloud) Proxy(ca tls.Certificate) (http.Handler, error) { return http.NotFoundHandler(), nil }

// EnsureSnapshot makes sure that there is a snapshot labelled caph-image-name=<name> and os=talos
// for the architecture (x86 or arm).
func (c *Cloud) EnsureSnapshot(name, architecture string) error { return nil }

// Servers returns all servers, oldest first.
func (c *Cloud) Servers() []Server { return nil }

// LoadBalancers returns all load balancers, oldest first.
func (c *Cloud) LoadBalancers() []LoadBalancer { return nil }

// Metadata serves a server's metadata as http://169.254.169.254 does on the server itself.
func (c *Cloud) Metadata(serverID int64) http.Handler { return http.NotFoundHandler() }

// InjectFault makes something go wrong from now on and returns the fault's number.
func (c *Cloud) InjectFault(fault Fault) (int64, error) { return 0, nil }

// RemoveFault ends a fault; it tells whether there was one.
func (c *Cloud) RemoveFault(id int64) bool { return false }

// Faults returns the faults in force by number.
func (c *Cloud) Faults() map[int64]Fault { return nil }

// VanishServer makes a server disappear without any request, as a failed host does.
func (c *Cloud) VanishServer(ctx context.Context, name string) error { return nil }
