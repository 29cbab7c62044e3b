package serve

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// isLoopback reports whether only this machine reaches an address to listen on, which a flag gave.
func isLoopback(flag, address string) (bool, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return false, usage.Errorf("%s %q is no address: write HOST:PORT, 127.0.0.1:8087 for example", flag, address)
	}
	return auth.IsLoopback(host), nil
}

// certificate is a certificate in two files, which are read again and again: they are replaced before it expires.
type certificate struct {
	cert, key string

	mu   sync.Mutex
	now  *tls.Certificate
	read time.Time
}

// certificateOften is how often a certificate is read again at most.
const certificateOften = 10 * time.Second

// readCertificate reads a certificate and its key, which is refused as auth.ReadPrivate does.
func readCertificate(cert, key string) (*certificate, error) {
	c := &certificate{cert: cert, key: key}
	if err := c.again(); err != nil {
		return nil, usage.Errorf("read the certificate of --tls-cert and --tls-key: %w", err)
	}
	return c, nil
}

func (c *certificate) again() error {
	cert, err := os.ReadFile(c.cert)
	if err != nil {
		return err
	}
	key, err := auth.ReadPrivate(c.key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	c.now = &pair
	return nil
}

// config is for a server that shows the certificate. While files that changed cannot be read, it is the earlier one.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if time.Since(c.read) > certificateOften {
				c.read = time.Now()
				_ = c.again() // half written files are read the next time
			}
			return c.now, nil
		},
	}
}

// hosts are the names that the certificate is for.
func (c *certificate) hosts() auth.Hosts {
	var names auth.Hosts
	for _, name := range c.now.Leaf.DNSNames {
		names = append(names, strings.ToLower(name))
	}
	for _, ip := range c.now.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}
