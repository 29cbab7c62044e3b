package images

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// client sends requests to one repository of one endpoint.
type client struct {
	http *http.Client
	base string // https://host/v2/prefix/repository
}

// connectWithin bounds how long a connection to a registry may take, with its TLS handshake.
const connectWithin = 10 * time.Second

// client returns the client of a repository at an endpoint, and negotiates its authorization the first time.
func (s *Store) client(ctx context.Context, e Endpoint, repository string) (*client, error) {
	key := e.URL + " " + repository
	if known, ok := s.clients.Load(key); ok {
		return known.(*client), nil
	}
	made, err := s.newClient(ctx, e, repository)
	if err != nil {
		return nil, err
	}
	s.clients.Store(key, made)
	return made, nil
}

func (s *Store) newClient(ctx context.Context, e Endpoint, repository string) (*client, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		return nil, err
	}
	path := strings.Trim(strings.Trim(u.Path, "/")+"/"+repository, "/")
	repo, err := name.NewRepository(u.Host + "/" + path)
	if err != nil {
		return nil, err
	}
	base, err := s.transport(e)
	if err != nil {
		return nil, err
	}
	keychain := s.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	auth, err := authn.Resolve(ctx, keychain, repo)
	if err != nil {
		return nil, fmt.Errorf("find the credentials of %s in Docker's configuration: %w", u.Host, err)
	}
	authorized, err := transport.NewWithContext(ctx, repo.Registry, auth, &schemeGuard{endpoint: u, inner: base},
		[]string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	return &client{http: &http.Client{Transport: authorized}, base: u.Scheme + "://" + u.Host + "/v2/" + path}, nil
}

// transport is the connection to an endpoint, with its certificates.
func (s *Store) transport(e Endpoint) (http.RoundTripper, error) {
	if s.Transport != nil && e.CAFile == "" && !e.Insecure {
		return s.Transport, nil
	}
	within := min(connectWithin, s.patience())
	made := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: within}).DialContext,
		TLSHandshakeTimeout:   within,
		ResponseHeaderTimeout: s.patience(),
		IdleConnTimeout:       connectWithin,
		ForceAttemptHTTP2:     true,
	}
	if e.Insecure {
		made.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // as the configuration of registries says
	}
	if e.CAFile != "" {
		data, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authority of %s: %w", e.URL, err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read the certificate authority of %s: %s has no certificate in PEM", e.URL, e.CAFile)
		}
		made.TLSClientConfig = &tls.Config{RootCAs: pool, InsecureSkipVerify: e.Insecure}
	}
	return made, nil
}

// schemeGuard sends requests to an endpoint as its address says: over plain HTTP only where that begins with http://.
// The library decides by itself, and takes it for granted that registries on the loopback speak plain HTTP.
type schemeGuard struct {
	endpoint *url.URL
	inner    http.RoundTripper
}

var errPlainHTTP = errors.New("its address begins with https://, and plain HTTP is not spoken for it: where that is " +
	"right, write http:// in registry.yaml")

// RoundTrip refuses a request over plain HTTP for an endpoint that does not speak it.
func (g *schemeGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case g.endpoint.Scheme == "https" && r.URL.Scheme == "http":
		return nil, errPlainHTTP
	case g.endpoint.Scheme == "http" && r.URL.Scheme == "https" && r.URL.Host == g.endpoint.Host:
		r = r.Clone(r.Context())
		r.URL.Scheme = "http"
	}
	return g.inner.RoundTrip(r)
}
