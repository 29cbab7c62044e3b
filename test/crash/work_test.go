package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// A result counts for the code that it was got with, and for the judge that gave it; the tests of both do not matter.
func TestKey(t *testing.T) {
	root := t.TempDir()
	for _, part := range partsOfCode() {
		if filepath.Ext(part) == "" {
			part += "/x.go"
		}
		write(t, filepath.Join(root, part), "one")
	}
	key := func() string {
		t.Helper()
		k, err := Key(root)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for name, matters := range map[string]bool{
		"steps/x.go": true, "lab/x.go": true, "go.sum": true, "test/judge/x.go": true, "test/crash/x.go": true,
		"test/crash/cmd/main.go": true,
		"test/judge/x_test.go":   false, "test/crash/x_test.go": false, "test/x.go": false, "docs/x.md": false,
	} {
		was := key()
		write(t, filepath.Join(root, name), "another")
		if changed := key() != was; changed != matters {
			t.Errorf("with another %s the key is another: %v", name, changed)
		}
	}
}

// A second suite, of this state of the code or another, leaves the first one's folder alone and names the first.
func TestClaim(t *testing.T) {
	work := t.TempDir()
	release, err := Claim(t.Context(), work, "first")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(work, "first", "state")
	write(t, filepath.Join(state, "journal.json"), "{}")
	for _, key := range []string{"first", "second"} {
		_, err := Claim(t.Context(), work, key)
		var held *flow.LockedError
		if !errors.As(err, &held) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on ", os.Getpid())) {
			t.Errorf("a second suite of %s is told %v", key, err)
		}
		if _, err := os.Stat(filepath.Join(state, "journal.json")); err != nil {
			t.Fatalf("a second suite of %s took the first one's state folder: %v", key, err)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = Claim(t.Context(), work, "second")
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("once the first one has ended its labs are tidied away: %v", err)
	}
}
