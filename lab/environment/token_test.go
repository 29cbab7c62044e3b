package environment

import (
	"path/filepath"
	"testing"
)

func TestTokenIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := ensureToken(path)
	if err != nil || len(first) != 64 {
		t.Fatalf("%d characters, %v", len(first), err)
	}
	if second, err := ensureToken(path); err != nil || second != first {
		t.Errorf("another token: %v", err)
	}
}
