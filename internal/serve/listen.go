package serve

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// IsLoopback reports whether only this machine reaches an address to listen on, which a flag gave.
func IsLoopback(flag, address string) (bool, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return false, usage.Errorf("%s %q is no address: write HOST:PORT, 127.0.0.1:8087 for example", flag, address)
	}
	return auth.IsLoopback(host), nil
}

// Certificate is a certificate in two files, which are read again when they change.
type Certificate struct {
	cert, key string

	mu      sync.Mutex
	now     *tls.Certificate
	changed [2]time.Time
	looked  time.Time
}

// certificateOften is how often it is looked whether a certificate has changed.
const certificateOften = 10 * time.Second

// ReadCertificate reads a certificate and its key, which is refused as auth.ReadPrivate does.
func ReadCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	if err := c.read(); err != nil {
		return nil, usage.Errorf("read the certificate of --tls-cert and --tls-key: %w", err)
	}
	return c, nil
}

func (c *Certificate) read() error {
	var changed [2]time.Time
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		changed[i] = info.ModTime()
	}
	if c.now != nil && changed == c.changed {
		return nil
	}
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
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("read %s: %w", c.cert, err)
		}
	}
	c.now, c.changed = &pair, changed
	return nil
}

// Config is for a server that shows the certificate. While files that changed cannot be read, it is the earlier one.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if time.Since(c.looked) > certificateOften {
				c.looked = time.Now()
				_ = c.read() // half written files are read the next time
			}
			return c.now, nil
		},
	}
}

// Hosts are the names that the certificate is for.
func (c *Certificate) Hosts() auth.Hosts {
	var names auth.Hosts
	for _, name := range c.now.Leaf.DNSNames {
		names = append(names, strings.ToLower(name))
	}
	for _, ip := range c.now.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}
