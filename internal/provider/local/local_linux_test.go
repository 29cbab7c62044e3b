package local

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

func newProvider(t *testing.T) (*Provider, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "management")
	return New(lab.LocalManagement{Dir: dir}, nil), dir
}

// What only looks starts nothing, and says how the cluster comes to run.
func TestWithoutADaemon(t *testing.T) {
	p, dir := newProvider(t)
	if there, err := p.Exists(t.Context(), "k8s-mgmt"); there || err != nil {
		t.Errorf("before the first run: %v, %v", there, err)
	}
	if stopped, err := p.Stopped(t.Context(), "k8s-mgmt"); stopped || err != nil {
		t.Errorf("before the first run: stopped %v, %v", stopped, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "management", "k8s-mgmt"), 0o700); err != nil {
		t.Fatal(err)
	}
	if there, err := p.Exists(t.Context(), "k8s-mgmt"); !there || err != nil {
		t.Errorf("a cluster that does not run: %v, %v", there, err)
	}
	if stopped, err := p.Stopped(t.Context(), "k8s-mgmt"); !stopped || err != nil {
		t.Errorf("a cluster that does not run: stopped %v, %v", stopped, err)
	}
	if there, err := p.Exists(t.Context(), "other"); there || err != nil {
		t.Errorf("another cluster: %v, %v", there, err)
	}
	if _, err := p.Look(t.Context(), "k8s-mgmt"); err == nil || !strings.Contains(err.Error(), "starts it again") {
		t.Errorf("a look: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "bin")); !os.IsNotExist(err) {
		t.Errorf("something was prepared: %v", err)
	}
}

// The data go only when no process uses them.
func TestDelete(t *testing.T) {
	p, dir := newProvider(t)
	if err := p.Delete(t.Context(), "k8s-mgmt"); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "daemon.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := lock.WriteString("4711\n"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), "k8s-mgmt"); err == nil || !strings.Contains(err.Error(), "process 4711") {
		t.Errorf("beside a daemon that does not answer: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("its data: %v", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), "k8s-mgmt"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after its end: %v", err)
	}
}

// What a deletion that was cut off has left is there, is not started, and is deleted by the next one.
func TestDeletionCutOff(t *testing.T) {
	p, dir := newProvider(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, deletingFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if there, err := p.Exists(t.Context(), "k8s-mgmt"); !there || err != nil {
		t.Errorf("what was left: %v, %v", there, err)
	}
	if stopped, err := p.Stopped(t.Context(), "k8s-mgmt"); stopped || err != nil {
		t.Errorf("what was left: stopped %v, %v", stopped, err)
	}
	if err := p.Delete(t.Context(), "k8s-mgmt"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after the next deletion: %v", err)
	}
}

func TestPossible(t *testing.T) {
	if err := Possible(t.Context()); err != nil && !strings.Contains(err.Error(), "MANAGEMENT=kind") {
		t.Errorf("a refusal names no way out: %v", err)
	}
}
