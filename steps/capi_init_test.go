package steps

import "testing"

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
