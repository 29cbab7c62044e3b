package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLabClient(t *testing.T) {
	f := newFakeLab(t)
	c := newLabClient(f.dir)
	info, err := c.info(t.Context())
	if err != nil || info.Token != f.info.Token || info.Versions["CACPPT"] != "v0.5.13" {
		t.Errorf("got %+v, %v", info, err)
	}
	if err := c.ensureImage(t.Context(), "talos-amd64-v1.12.2"); err != nil {
		t.Error(err)
	}
	if !slices.Contains(f.asked, "PUT /v1/images/talos-amd64-v1.12.2") {
		t.Errorf("asked: %q", f.asked)
	}
}

func TestLabManagement(t *testing.T) {
	f := newFakeLab(t)
	m := labManagement{newLabClient(f.dir)}
	if there, err := m.Exists(t.Context(), "k8s-mgmt"); there || err != nil {
		t.Errorf("before: %v, %v", there, err)
	}
	if kubeconfig, err := m.Ensure(t.Context(), "k8s-mgmt", quiet); err != nil || !strings.Contains(string(kubeconfig), "k8s-mgmt") {
		t.Errorf("ensure: %s, %v", kubeconfig, err)
	}
	if there, err := m.Exists(t.Context(), "k8s-mgmt"); !there || err != nil {
		t.Errorf("then: %v, %v", there, err)
	}
	// An error is not an answer.
	if there, err := m.Exists(t.Context(), "broken"); there || err == nil || !strings.Contains(err.Error(), "etcd is on fire") {
		t.Errorf("broken: %v, %v", there, err)
	}
	if err := m.Delete(t.Context(), "k8s-mgmt"); err != nil || f.managements["k8s-mgmt"] {
		t.Errorf("delete: %v", err)
	}
	f.server.Close()
	if _, err := m.Exists(t.Context(), "k8s-mgmt"); !errors.Is(err, errLabDown) {
		t.Errorf("of a lab that is down: %v", err)
	}
}

func TestLabDown(t *testing.T) {
	f := newFakeLab(t)
	l := &lab{dir: f.dir, client: newLabClient(f.dir)}
	if was, err := l.down(t.Context()); !was || err != nil {
		t.Errorf("down: %v, %v", was, err)
	}
	if was, err := l.down(t.Context()); was || err != nil {
		t.Errorf("a second time: %v, %v", was, err)
	}
	if _, err := l.answering(t.Context()); !errors.Is(err, errLabDown) {
		t.Errorf("it answers: %v", err)
	}
}

// Where a folder's path is too long for a socket, a file names another one.
func TestLabSocketElsewhere(t *testing.T) {
	f := newFakeLab(t)
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "lab.sock.path"), []byte(filepath.Join(f.dir, "lab.sock")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newLabClient(deep).info(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lab that is up is used, whatever the sources say.
func TestLabUpUsesWhatIsUp(t *testing.T) {
	f := newFakeLab(t)
	l := &lab{dir: f.dir, client: newLabClient(f.dir), workDir: t.TempDir()}
	if info, err := l.up(t.Context(), quiet); err != nil || info.Token != f.info.Token {
		t.Errorf("got %+v, %v", info, err)
	}
	f.server.Close()
	if _, err := l.up(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), "in no clone of Slipway") ||
		!strings.Contains(err.Error(), "can be used from any folder: in the clone, run bootstrap lab up --state-dir "+filepath.Dir(f.dir)) {
		t.Errorf("without sources: %v", err)
	}
}
