package crash

import (
	"path/filepath"
	"testing"
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
		"steps/x.go": true, "lab/x.go": true, "go.sum": true, "test/judge/x.go": true, "test/crash/x.go": true, "test/crash/cmd/main.go": true,
		"test/judge/x_test.go": false, "test/crash/x_test.go": false, "test/x.go": false, "docs/x.md": false,
	} {
		was := key()
		write(t, filepath.Join(root, name), "another")
		if changed := key() != was; changed != matters {
			t.Errorf("with another %s the key is another: %v", name, changed)
		}
	}
}
