package capiinit_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// clusterctl is made for the contract of the core that is, or will be, in the management cluster: as its definitions
// say, and for an upgrade of the core its release.
func TestContractOfClusterctl(t *testing.T) {
	d := config.Defaults()
	for name, tt := range map[string]struct {
		stored    string            // version of the definitions; empty: there are none
		installed map[string]string // providers, by their label, that differ from the defaults; nil: none is installed
		missing   string            // a provider
		newLine   bool              // is configured
		contract  string
	}{
		"init of an empty cluster":   {contract: ""},
		"only definitions were made": {stored: "v1beta1", contract: "v1beta1"},
		"a provider is missing": {stored: "v1beta1", installed: map[string]string{}, missing: "control-plane-talos",
			contract: "v1beta1"},
		"and on the new line": {stored: "v1beta2", installed: map[string]string{}, missing: "control-plane-talos",
			contract: "v1beta2"},
		"another control plane's": {stored: "v1beta1", installed: map[string]string{"control-plane-talos": "v0.5.11"},
			contract: "v1beta1"},
		"and on the new line, too": {stored: "v1beta2", installed: map[string]string{"control-plane-talos": "v0.5.11"},
			contract: "v1beta2"},
		"the core, within its line": {stored: "v1beta1", installed: map[string]string{"cluster-api": "v1.10.2"},
			contract: "v1beta1"},
		"the core, to the new line": {stored: "v1beta1", installed: map[string]string{}, newLine: true, contract: "v1beta2"},
		"the core, cut off":         {stored: "v1beta2", installed: map[string]string{}, newLine: true, contract: "v1beta2"},
		"the core, within the new line": {stored: "v1beta2", installed: map[string]string{"cluster-api": "v1.13.5"},
			newLine: true, contract: "v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			cfg, tools := w.Config(), w.Tools()
			if tt.newLine {
				cfg.CAPIVersion, cfg.CAPHVersion = "v1.13.6", "v1.1.8"
			}
			sources, err := render.Read(render.VariablesOf(cfg), "")
			if err != nil {
				t.Fatal(err)
			}
			if err := tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
			if tt.stored != "" {
				w.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", tt.stored, "Cluster"))
			}
			const inventory = "clusterctl.cluster.x-k8s.io/v1alpha3"
			if tt.installed != nil {
				w.Install(d)
			}
			for label, version := range tt.installed {
				w.Management.Change(inventory, "Provider", label, label, clustertest.Map{"version": version})
			}
			if tt.missing != "" {
				w.Management.Remove(inventory, "Provider", tt.missing, tt.missing)
			}
			tools = tools.WithDefaults()
			do, upgrade := capiinit.Install, tt.installed != nil && tt.missing == ""
			if upgrade {
				do = capiinit.Upgrade
			}
			if err := do(t.Context(), cfg, tools, sources, t.Logf, platform.ManagementKubeconfig); err != nil {
				t.Fatal(err)
			}
			if len(w.Upgrades) > 0 != upgrade || !slices.Equal(w.Contracts, []string{tt.contract}) {
				t.Errorf("%d upgrades, made for %q, want %q", len(w.Upgrades), w.Contracts, tt.contract)
			}
			installed, err := tools.Connect(w.Management.Kubeconfig())
			if err != nil {
				t.Fatal(err)
			}
			if versions, err := capi.InstalledProviders(t.Context(), installed); err != nil ||
				versions["cluster-api"] != cfg.CAPIVersion || versions["control-plane-talos"] != cfg.CACPPTVersion {
				t.Errorf("installed %v, %v", versions, err)
			}
		})
	}
}
