package cli

import (
	"os"
	"strings"
	"testing"
)

// A container engine that kind does not know is refused before anything is created, where kind is used.
func TestAnUnknownContainerEngineIsRefused(t *testing.T) {
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "dokcer")
	for _, target := range []string{"all", "plan", "doctor", "destroy --yes"} {
		dir := t.TempDir()
		t.Chdir(dir)
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x", strings.Fields(target)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, `KIND_EXPERIMENTAL_PROVIDER="dokcer"`) {
			t.Errorf("%s: %+v", target, r)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: it made %v, %v", target, entries, err)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	if r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x", "plan", "MANAGEMENT=local"); strings.Contains(r.stderr,
		"KIND_EXPERIMENTAL_PROVIDER") {
		t.Errorf("without kind: %+v", r)
	}
}
