package clustertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Sources reads the files that a configuration is rendered from; an empty folder of overrides means the built-in ones.
func Sources(t *testing.T, cfg config.Config, overrides string) render.Sources {
	t.Helper()
	sources, err := render.Read(render.VariablesOf(cfg), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// Edit puts a changed copy of a file of the repository into an overrides folder.
func Edit(t *testing.T, overrides, file string, change func(string) string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository(t), file))
	if err != nil {
		t.Fatal(err)
	}
	changed := change(string(data))
	if changed == string(data) {
		t.Fatalf("nothing was changed in %s", file)
	}
	path := filepath.Join(overrides, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Replacing replaces a text once.
func Replacing(old, now string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, now, 1) }
}

// repository is the folder of the module.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test does not run in the repository")
		}
		dir = filepath.Dir(dir)
	}
}
