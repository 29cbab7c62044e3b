package kube

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// expiring names an expired client certificate where the API server refuses a request: it only says "Unauthorized". A
// certificate that this machine's clock alone calls expired is used.
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
		return nil, fmt.Errorf("%s: %w", e.says(), err)
	case err == nil && resp.StatusCode == http.StatusUnauthorized:
		return e.explained(resp), nil
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what this is around.
func (e *expiring) WrappedRoundTripper() http.RoundTripper { return e.next }

func (e *expiring) says() string {
	return fmt.Sprintf("it does not accept the client certificate of the kubeconfig, which ended on %s: the target kubeconfig "+
		"fetches a new one from the Secret in the management cluster; where the cluster manages itself, talosctl kubeconfig "+
		"fetches one from the Talos API of a control plane server, with the talosconfig in the state folder; the provider of "+
		"a management cluster gives that one's",
		e.ended.UTC().Format(time.RFC3339))
}

// explained is the answer with the reason in its message.
func (e *expiring) explained(resp *http.Response) *http.Response {
	body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized,
		Message: "Unauthorized: " + e.says()})
	if err != nil {
		return resp
	}
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header = resp.Header.Clone()
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Del("Content-Length")
	resp.Header.Del("Content-Encoding")
	return resp
}
