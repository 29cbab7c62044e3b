package kube

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestPodKubeconfig asks an API server with the files that a kubelet would have put there.
func TestPodKubeconfig(t *testing.T) {
	var sent string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"gitVersion":"v1.33.7"}`))
	}))
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	dir := t.TempDir()
	if _, err := podKubeconfig(environment, dir); !errors.Is(err, ErrNoPod) {
		t.Errorf("without the files: %v", err)
	}
	if _, err := podKubeconfig(nil, dir); !errors.Is(err, ErrNoPod) {
		t.Errorf("without the variables: %v", err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for file, content := range map[string][]byte{"token": []byte("of-the-account"), "ca.crt": authority} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := podKubeconfig(environment, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(kubeconfig); err == nil {
		t.Error("a kubeconfig that names the token's file opens a cluster as one from outside does")
	}
	c, err := ConnectTrusted(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(kubeconfig, []byte("of-the-account")) {
		t.Errorf("the kubeconfig holds the token:\n%s", kubeconfig)
	}
	if version, err := c.Version(t.Context()); err != nil || version != "v1.33.7" || sent != "Bearer of-the-account" {
		t.Errorf("version %q, %v, authorized by %q", version, err, sent)
	}
	// The kubelet replaces the token while it is in use.
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = ConnectTrusted(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); err != nil || sent != "Bearer another" {
		t.Errorf("after the token was replaced: %v, authorized by %q", err, sent)
	}
}
