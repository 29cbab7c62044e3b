package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A module that Go's cache has is not asked for: the lab starts while the module proxy does not answer.
func TestCachedModulesAreNotDownloaded(t *testing.T) {
	cache := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cache, "example.org", "cached@v1.0.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &builder{source: t.TempDir(), env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GOPROXY=off",
		"GOMODCACHE=" + cache, "GOFLAGS=-mod=mod"}}
	if err := b.downloadModules(t.Context(), []string{"example.org/cached@v1.0.0"}); err != nil {
		t.Error(err)
	}
	err := b.downloadModules(t.Context(), []string{"example.org/cached@v1.0.0", "example.org/missing@v1.0.0"})
	if err == nil || !strings.Contains(err.Error(), "example.org/missing") {
		t.Errorf("a module that is missing: %v", err)
	}
}
