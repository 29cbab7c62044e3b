package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:8087": true, "[::1]:0": true, "localhost:1": true, "127.9.9.9:1": true,
		":8087": false, "0.0.0.0:8087": false, "[::]:1": false, "192.0.2.1:1": false, "example.com:1": false, "localhost.example:1": false} {
		if got, err := isLoopback("--listen", address); got != want || err != nil {
			t.Errorf("%s: %t, %v", address, got, err)
		}
	}
	for _, wrong := range []string{"", "127.0.0.1", "8087", "127.0.0.1:"} {
		if _, err := isLoopback("--listen", wrong); err == nil {
			t.Errorf("%q is an address", wrong)
		}
	}
}

// writeCertificate writes a certificate for this machine's address and a name, and its key.
func writeCertificate(t *testing.T, dir, name string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return cert, key, pool
}

// Over TLS serve answers to the names of its certificate, and shows a renewed one.
func TestTLS(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	dir := t.TempDir()
	if _, err := readCertificate(filepath.Join(dir, "none"), filepath.Join(dir, "none")); err == nil {
		t.Error("there is a certificate in no file")
	}
	certFile, keyFile, pool := writeCertificate(t, dir, "Serve.example")
	cert, err := readCertificate(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if names := cert.hosts(); !slices.Equal(names, []string{"serve.example", "127.0.0.1"}) {
		t.Errorf("its names are %q", names)
	}
	d.server.TLS, d.server.Hosts = cert.config(), cert.hosts()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Serve(ctx, listener, nil) }()
	get := func(pool *x509.CertPool, host string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+listener.Addr().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		response, err := client.Do(r)
		if err == nil {
			response.Body.Close()
		}
		return response, err
	}
	for host, status := range map[string]int{"serve.example": 200, "SERVE.example:443": 200, "other.example": 421} {
		if response, err := get(pool, host); err != nil || response.StatusCode != status {
			t.Errorf("%s: %v, %v", host, response, err)
		} else if strict := response.Header.Get("Strict-Transport-Security") != ""; !strict {
			t.Errorf("%s: no Strict-Transport-Security", host)
		}
	}
	_, _, renewed := writeCertificate(t, dir, "serve.example")
	cert.mu.Lock()
	cert.read = time.Time{}
	cert.mu.Unlock()
	if _, err := get(renewed, "serve.example"); err != nil {
		t.Errorf("a renewed certificate: %v", err)
	}
	if err := os.WriteFile(keyFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert.mu.Lock()
	cert.read = time.Time{}
	cert.mu.Unlock()
	if _, err := get(renewed, "serve.example"); err != nil {
		t.Errorf("while the files cannot be read: %v", err)
	}
	if _, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: renewed, MinVersion: tls.VersionTLS10,
		MaxVersion: tls.VersionTLS11}); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
