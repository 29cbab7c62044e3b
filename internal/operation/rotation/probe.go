package rotation

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// connectionsPerServer is how many connections are made for each kube-apiserver, so that a load balancer which
	// spreads them at random leaves none out.
	connectionsPerServer = 8
	// connectionsAtOnce is how many of them are made at once.
	connectionsAtOnce = 4
	// probeWithin bounds one request to a kube-apiserver.
	probeWithin = 5 * time.Second
)

// probe is how a kube-apiserver is to answer.
type probe struct {
	roots    []byte // that it is verified with
	client   pair   // certificate that is shown to it
	accepted bool   // it takes that for an administrator's; else it refuses it
	issuer   []byte // has issued its own certificate; nil: any of the roots
}

// apiServers asks the kube-apiservers behind an endpoint.
type apiServers interface {
	// look makes so many connections, and returns for each kube-apiserver, by its certificate, whether it answers so.
	look(ctx context.Context, host string, p probe, connections int) (map[string]bool, error)
}

// endpoint asks them over the network.
type endpoint struct{}

func (endpoint) look(ctx context.Context, host string, p probe, connections int) (map[string]bool, error) {
	certificate, err := tls.X509KeyPair(p.client.Crt, p.client.Key)
	if err != nil {
		return nil, fmt.Errorf("read the client certificate that is shown to the kube-apiservers: %w", err)
	}
	roots, err := pool(p.roots)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(connectionsAtOnce)
	for range connections {
		asking.Go(func() error {
			transport := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment,
				TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots,
					Certificates: []tls.Certificate{certificate}}}
			defer transport.CloseIdleConnections()
			leaf, ok, err := ask(ctx, &http.Client{Transport: transport, Timeout: probeWithin}, host, p)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found[leaf] = ok
			return nil
		})
	}
	return found, asking.Wait()
}

// ask makes a request that needs an administrator.
func ask(ctx context.Context, c *http.Client, host string, p probe) (leaf string, ok bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/api/v1/nodes?limit=1", nil)
	if err != nil {
		return "", false, err
	}
	answer, err := c.Do(request)
	if err != nil {
		return "", false, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) // its status is all
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return "", false, errors.New(host + " answers without a certificate")
	}
	is := answer.TLS.PeerCertificates[0]
	sum := sha256.Sum256(is.Raw)
	switch answer.StatusCode {
	case http.StatusOK:
		ok = p.accepted
	case http.StatusUnauthorized:
		ok = !p.accepted
	default:
		return "", false, fmt.Errorf("%s answers a request for the nodes with %s", host, answer.Status)
	}
	if p.issuer != nil {
		issuers, err := pool(p.issuer)
		if err != nil {
			return "", false, err
		}
		_, err = is.Verify(x509.VerifyOptions{Roots: issuers})
		ok = ok && err == nil
	}
	return string(sum[:]), ok, nil
}

func pool(certificates []byte) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(certificates) {
		return nil, errors.New("an authority has no certificate in PEM")
	}
	return p, nil
}
