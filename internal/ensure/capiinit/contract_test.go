package capiinit_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// clusterctl is made for the contract of the core that is, or will be, in the management cluster: as its definitions
// say, and for an upgrade of the core its release.
func TestContractOfClusterctl(t *testing.T) {
	const old, current = "guide", "2026-11"
	for name, tt := range map[string]struct {
		set     string            // is configured
		stored  string            // version of the definitions; empty: there are none
		has     string            // set of the installed providers; empty: none is installed
		other   map[string]string // versions of them that are not the set's, by label
		missing string            // a provider
		want    string            // contract
	}{
		"init of an empty cluster":   {set: old, want: ""},
		"only definitions were made": {set: old, stored: "v1beta1", want: "v1beta1"},
		"a provider is missing": {set: old, stored: "v1beta1", has: old,
			missing: "control-plane-talos", want: "v1beta1"},
		"and on the new line": {set: current, stored: "v1beta2", has: current,
			missing: "control-plane-talos", want: "v1beta2"},
		"another control plane's": {set: old, stored: "v1beta1", has: old,
			other: map[string]string{"control-plane-talos": "v0.5.11"}, want: "v1beta1"},
		"and on the new line, too": {set: current, stored: "v1beta2", has: current,
			other: map[string]string{"control-plane-talos": "v0.5.12"}, want: "v1beta2"},
		"the core, within its line": {set: old, stored: "v1beta1", has: old,
			other: map[string]string{"cluster-api": "v1.10.2"}, want: "v1beta1"},
		"the core, to the new line": {set: current, stored: "v1beta1", has: old, want: "v1beta2"},
		"the core, cut off":         {set: current, stored: "v1beta2", has: old, want: "v1beta2"},
		"the core, within the new line": {set: current, stored: "v1beta2", has: current,
			other: map[string]string{"cluster-api": "v1.13.5"}, want: "v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			cfg, tools := w.Config(), w.Tools()
			clustertest.Configure(t, &cfg, "VERSIONS="+tt.set)
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
			if tt.has != "" {
				has := cfg
				clustertest.Configure(t, &has, "VERSIONS="+tt.has)
				w.Install(has)
			}
			for label, version := range tt.other {
				w.Management.Change(inventory, "Provider", label, label, clustertest.Map{"version": version})
			}
			if tt.missing != "" {
				w.Management.Remove(inventory, "Provider", tt.missing, tt.missing)
			}
			tools = tools.WithDefaults()
			do, upgrade := capiinit.Install, tt.has != "" && tt.missing == ""
			if upgrade {
				do = capiinit.Upgrade
			}
			if err := do(t.Context(), cfg, tools, sources, t.Logf, platform.ManagementKubeconfig); err != nil {
				t.Fatal(err)
			}
			if len(w.Upgrades) > 0 != upgrade || !slices.Equal(w.Contracts, []string{tt.want}) {
				t.Errorf("%d upgrades, made for %q, want %q", len(w.Upgrades), w.Contracts, tt.want)
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
