package folder

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateIsKeptAndChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s, err := LoadState(path)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(func(d *Data) error {
		d.Slot, d.Management = 70, append(d.Management, Cluster{Name: "m", Index: 1})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(d *Data) error { d.Slot = 72; return io.EOF }); !errors.Is(err, io.EOF) ||
		s.Slot() != 70 {
		t.Errorf("a change that fails: %v, slot %d", err, s.Slot())
	}
	again, err := LoadState(path)
	if err != nil || again.Slot() != 70 || len(again.Management()) != 1 ||
		again.Management()[0] != (Cluster{Name: "m", Index: 1}) {
		t.Errorf("read back: %+v, %v", again, err)
	}
	for _, bad := range []string{"{", `{"version":2,"slot":70}`, `{"version":1,"slot":71}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadState(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestSocketsOfADeepFolder(t *testing.T) {
	shallow, err := Sockets("/tmp/lab")
	if err != nil || shallow != "/tmp/lab" {
		t.Errorf("a short path: %s, %v", shallow, err)
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 20))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	sockets, err := Sockets(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	if len(sockets)+1+longestSocket > maxSocketPath || !ownFolder(sockets) {
		t.Errorf("sockets go to %s", sockets)
	}
	l, err := ListenControl(sockets)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if found, err := FindSocket(dir); err != nil || found != l.Addr().String() {
		t.Errorf("found %s, %v, want %s", found, err, l.Addr())
	}
	if again, err := Sockets(dir); err != nil || again != sockets {
		t.Errorf("at the next start sockets go to %s, %v", again, err)
	}
	// A folder that other users may enter is not used for sockets, even if an older lab created it.
	if err := os.Chmod(sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	other, err := Sockets(dir)
	if err != nil || other == sockets {
		t.Errorf("an open folder is used again: %v", err)
	}
	if err := RemoveSockets(dir, other); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", other, err)
	}
	if found, err := FindSocket(dir); err != nil || found != filepath.Join(dir, controlSocket) {
		t.Errorf("found %s, %v", found, err)
	}
}

func TestLockFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, 123)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(impatient, path, 456); err == nil || !strings.Contains(err.Error(), "process 123") {
		t.Errorf("a second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = Lock(t.Context(), path, 456); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}
