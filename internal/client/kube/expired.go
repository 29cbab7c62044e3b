package kube

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// ExpiredError says that an API server refuses the client certificate of a kubeconfig, which has expired, and how to
// get a new one. It takes the place of "Unauthorized", of which client-go keeps no message.
type ExpiredError struct{ Ended time.Time }

// Error implements error.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("it does not accept the client certificate of the kubeconfig, which ended on %s: the target "+
		"kubeconfig fetches a new one from the Secret in the management cluster; where the cluster manages itself, "+
		"talosctl kubeconfig fetches one from the Talos API of a control plane server, with the talosconfig in the state "+
		"folder; the provider of a management cluster gives that one's", e.Ended.UTC().Format(time.RFC3339))
}

// expiring names an expired client certificate where the API server refuses it. One that this machine's clock alone
// calls expired is used.
type expiring struct {
	next  http.RoundTripper
	ended time.Time // of the client certificate
}

// namesExpired makes a transport of a client configuration name its expired client certificate; nil: it has none.
func namesExpired(config *rest.Config) transport.WrapperFunc {
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return &expiring{next, certificate.NotAfter} }
}

// RoundTrip implements http.RoundTripper.
func (e *expiring) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(req)
	switch {
	case time.Now().Before(e.ended):
	case err != nil && strings.Contains(err.Error(), "tls: "):
		return nil, fmt.Errorf("%w: %w", &ExpiredError{e.ended}, err)
	case err == nil && resp.StatusCode == http.StatusUnauthorized:
		_ = resp.Body.Close()
		return nil, &ExpiredError{e.ended}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what this is around.
func (e *expiring) WrappedRoundTripper() http.RoundTripper { return e.next }
