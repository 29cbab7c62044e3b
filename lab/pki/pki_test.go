package pki

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestIssuedCertificatesServeAndAuthenticate(t *testing.T) {
	ca, err := NewCA("lab")
	if err != nil {
		t.Fatal(err)
	}
	server := issue(t, ca, Request{CommonName: "server", Hosts: []string{"127.0.0.1", "api.example"}})
	client := issue(t, ca, Request{CommonName: "jane", Organizations: []string{"system:masters"}})

	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		io.WriteString(w, subject.CommonName+" of "+subject.Organization[0])
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: ca.Pool(),
		ClientAuth: tls.RequireAndVerifyClientCert}
	srv.StartTLS()
	defer srv.Close()

	for _, name := range []string{"127.0.0.1", "api.example"} {
		hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: ca.Pool(), Certificates: []tls.Certificate{client}, ServerName: name}}}
		res, err := hc.Get(srv.URL)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if got, want := string(body), "jane of system:masters"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: ca.Pool(), Certificates: []tls.Certificate{client}, ServerName: "other.example"}}}
	if res, err := hc.Get(srv.URL); err == nil {
		res.Body.Close()
		t.Error("a name that is not in the certificate was accepted")
	}
}

// A certificate that is signed once more is of the same name and key, until another time.
func TestReissue(t *testing.T) {
	ca, err := NewCA("lab")
	if err != nil {
		t.Fatal(err)
	}
	first, err := ca.Issue(Request{CommonName: "jane", Organizations: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(-time.Hour).Truncate(time.Second)
	expired, err := ca.Reissue(first.Cert, until)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := Pair{Cert: expired, Key: first.Key}.TLS()
	if err != nil {
		t.Fatalf("the key does not fit any more: %v", err)
	}
	subject := pair.Leaf.Subject
	if !pair.Leaf.NotAfter.Equal(until) || !pair.Leaf.NotBefore.Before(until) || subject.CommonName != "jane" ||
		subject.Organization[0] != "system:masters" {
		t.Errorf("it is good from %v to %v, for %v", pair.Leaf.NotBefore, pair.Leaf.NotAfter, subject)
	}
	opts := x509.VerifyOptions{Roots: ca.Pool(), CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	var invalid x509.CertificateInvalidError
	if _, err := pair.Leaf.Verify(opts); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("it verifies as %v", err)
	}
	opts.CurrentTime = until.Add(-time.Minute)
	opts.Roots = x509.NewCertPool()
	opts.Roots.AddCert(pair.Leaf) // its own time alone: the authority is younger
	if _, err := pair.Leaf.Verify(opts); err != nil {
		t.Errorf("a minute before its end it verifies as %v", err)
	}
	other, err := NewCA("other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Reissue(first.Cert, until); err == nil {
		t.Error("an authority signs what is not its own")
	}
}

// Talos's machine authority is Ed25519, its key in a PEM block of that name.
func TestParseCAReadsEd25519(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"talos"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := ParseCA(Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "ED25519 PRIVATE KEY", Bytes: key}),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := issue(t, ca, Request{CommonName: "node", Hosts: []string{"127.64.64.1"}})
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: "127.64.64.1"}); err != nil {
		t.Error(err)
	}
	if len(leaf.IPAddresses) != 1 || !leaf.IPAddresses[0].Equal(net.IPv4(127, 64, 64, 1)) {
		t.Errorf("addresses %v", leaf.IPAddresses)
	}
}

func TestParseCARefusesALeaf(t *testing.T) {
	ca, err := NewCA("lab")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(Request{CommonName: "leaf"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCA(leaf); err == nil {
		t.Error("a leaf certificate was taken for an authority")
	}
}

func TestEnsureKeepsWhatItMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := EnsureCA(dir, "ca", "lab")
	if err != nil {
		t.Fatal(err)
	}
	second, err := EnsureCA(dir, "ca", "lab")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Cert(), second.Cert()) {
		t.Error("a second EnsureCA made another authority")
	}
	k1, err := EnsureServiceAccountKey(filepath.Join(dir, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	k2, err := EnsureServiceAccountKey(filepath.Join(dir, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	if len(k1) == 0 || !bytes.Equal(k1, k2) {
		t.Error("a second EnsureServiceAccountKey made another key")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Errorf("files %v, want ca.crt, ca.key and sa.key alone", entries)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func issue(t *testing.T, ca *CA, r Request) tls.Certificate {
	t.Helper()
	pair, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
