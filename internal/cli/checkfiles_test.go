package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/manifests"
)

// Files that are known to be wrong are a mistake of the configuration: exit code 2 with their place, and nothing is
// made, in the lab neither.
func TestFilesAreCheckedBeforeARun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	data, err := manifests.Files.ReadFile(manifests.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(data), "kubePrism:", "kubePrismm:", 1)
	if err := os.Mkdir("manifests", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("manifests", manifests.Cluster), []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	line := strings.Count(wrong[:strings.Index(wrong, "kubePrismm:")], "\n") + 1
	want := fmt.Sprintf("manifests/cluster.yaml:%d: TalosControlPlane k8s-control-plane: strategicPatches[5]: unknown "+
		"key machine.features.kubePrismm", line)
	market := newMarket(t)
	for _, args := range []string{"all --lab --yes", "all --yes", "plan", "apply -n", "pivot --yes"} {
		r := execute(t, t.Context(), dir, inProject(market),
			append(strings.Fields(args), "--state-dir", filepath.Join(dir, "state"))...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d, %s", args, r.code, r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); !os.IsNotExist(err) {
		t.Errorf("there is a state folder (%v)", err)
	}
	if w := market.Writes(); len(w) > 0 {
		t.Errorf("it asked for %v", w)
	}
}
