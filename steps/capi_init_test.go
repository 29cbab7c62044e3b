package steps

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestKilledInTheTestOfCertManager is a run after one that was killed while clusterctl deleted its test of cert-manager: the
// namespace is on its way out. clusterctl would take it for there.
func TestKilledInTheTestOfCertManager(t *testing.T) {
	w := newWorld(t)
	b := &bootstrapper{cfg: w.config(), tools: w.tools().withDefaults(), sources: planner(t, "").sources}
	b.vars = b.cfg.variables()
	if err := b.tools.Files.Write(managementFile, w.mgmt.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	w.mgmt.Put(&unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
		"name": certManagerTest, "deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"test"},
	}}})
	inits := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.inits)
	}
	var once sync.Once
	early := -1
	say := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); strings.Contains(line, "is being deleted") {
			once.Do(func() {
				early = inits()
				w.mgmt.Remove("v1", "Namespace", "", certManagerTest)
			})
		}
	}
	if err := b.installProviders(t.Context(), say, managementFile); err != nil {
		t.Fatal(err)
	}
	if early != 0 || inits() != 1 {
		t.Errorf("clusterctl was at work %d times while the namespace was being deleted (-1: it was not waited for), and %d times in all", early, inits())
	}
}

// TestNoOverridesFromTheHome holds that the user's home has no say in what is installed, unless the configuration names it.
func TestNoOverridesFromTheHome(t *testing.T) {
	b := planner(t, "")
	b.tools.Files = FilesIn(t.TempDir())
	c, err := b.clusterctlConfig()
	if err != nil || c[overridesFolder] != b.tools.Files.Path(noOverrides) {
		t.Errorf("clusterctl takes overrides from %q, %v", c[overridesFolder], err)
	}
	dir := t.TempDir()
	write(t, dir, "manifests/clusterctl.yaml", "overridesFolder: /srv/overrides\n")
	b = planner(t, dir)
	if c, err = b.clusterctlConfig(); err != nil || c[overridesFolder] != "/srv/overrides" {
		t.Errorf("the user's folder became %q, %v", c[overridesFolder], err)
	}
}
