package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// clientOf is a kubeconfig of a server with a client certificate that ends at a time.
func clientOf(t *testing.T, s *httptest.Server, ends time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-24 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: test, user: {client-certificate-data: %s, client-key-data: %s}}]
`, s.URL, encoded("CERTIFICATE", s.Certificate().Raw), encoded("CERTIFICATE", der), encoded("EC PRIVATE KEY", private))
}

// An API server says no more than "Unauthorized" of an expired client certificate: it is named, with how to get a new
// one. One that did not expire is not blamed.
func TestExpiredClientCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized",`+
			`"code":401}`)
	}))
	s.StartTLS()
	defer s.Close()
	for ends, named := range map[time.Duration]bool{-time.Hour: true, time.Hour: false} {
		ended := time.Now().Add(ends)
		cluster, err := Connect(clientOf(t, s, ended))
		if err != nil {
			t.Fatal(err)
		}
		_, err = cluster.UID(t.Context())
		if _, is := errors.AsType[*ExpiredError](err); is != named || apierrors.IsUnauthorized(err) == named || Transient(err) ||
			!answered(err) {
			t.Errorf("it ends in %s: %v", ends, err)
		}
		for _, says := range []string{"the client certificate of the kubeconfig, which ended on " +
			ended.UTC().Format(time.RFC3339), "the target kubeconfig fetches a new one", "talosctl kubeconfig"} {
			if err == nil || strings.Contains(err.Error(), says) != named {
				t.Errorf("it ends in %s, %q: %v", ends, says, err)
			}
		}
	}
}
