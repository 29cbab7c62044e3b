package steps

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// TestApplyTakesNoServerAwayUnasked changes the configuration, or the live cluster as with kubectl, between two runs.
func TestApplyTakesNoServerAwayUnasked(t *testing.T) {
	patchLive := func(w *clustertest.Environment, spec clustertest.Map) {
		w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
			clustertest.Map{"spec": spec})
	}
	edited := func(t *testing.T, w *clustertest.Environment) { // a manifest edited for another reason: apply runs again
		t.Helper()
		write(t, w.Tools().Overrides, "manifests/machine-health-check.yaml", "apiVersion: cluster.x-k8s.io/v1beta1\nkind: "+
			"MachineHealthCheck\nmetadata: {name: k8s-control-plane, namespace: default}\nspec: {}\n")
	}
	for name, tt := range map[string]struct {
		change func(*testing.T, *clustertest.Environment, *config.Config)
		want   []string // of the refusal; none: it is no harm
	}{
		"nothing that matters": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) { edited(t, w) }, nil},
		"what a webhook fills in": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			edited(t, w)
			patchLive(w, clustertest.Map{"controlPlaneConfig": clustertest.Map{"init": clustertest.Map{"generateType": ""},
				"controlplane": clustertest.Map{"data": "", "hostname": clustertest.Map{}}}})
		}, nil},
		"scaled up": {func(t *testing.T, _ *clustertest.Environment, c *config.Config) {
			clustertest.Configure(t, c, "CONTROL_PLANE_REPLICAS=5")
		}, nil},
		"scaled with kubectl": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			edited(t, w)
			patchLive(w, clustertest.Map{"replicas": 5})
		}, []string{"removes 2 of the 5 servers of TalosControlPlane k8s-control-plane: replicas 5 → 3",
			"controlPlaneReplicas: 5", "--yes"}},
		"upgraded with kubectl": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			edited(t, w)
			patchLive(w, clustertest.Map{"version": "v1.35.9"})
		}, []string{"replaces all 3 servers of TalosControlPlane k8s-control-plane one after another: Kubernetes v1.35.9 → " +
			"v1.35.4, a downgrade", "kubernetesVersion: v1.35.9"}},
		"another image": {func(t *testing.T, w *clustertest.Environment, c *config.Config) {
			w.Hetzner.SetImages(hetznertest.Image(2, "other", "x86", "available"))
			clustertest.Configure(t, c, "IMAGE_NAME=other")
		}, []string{"replaces all 3 servers of TalosControlPlane k8s-control-plane one after another: server imageName " +
			"talos-amd64-v1.13.9 → other (k8s-control-plane-0, k8s-control-plane-1, k8s-control-plane-2; new: " +
			"k8s-control-plane-7d192-…): "}},
		"another patch": {func(t *testing.T, _ *clustertest.Environment, c *config.Config) {
			clustertest.Configure(t, c, "OIDC_ISSUER_URL=https://auth.example.com/")
			clustertest.Configure(t, c, "OIDC_CLIENT_ID=kubernetes")
		}, []string{"replaces all 3 servers of TalosControlPlane k8s-control-plane one after another: strategicPatches [10 " +
			"items] → [11 items] ("}},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
				t.Fatal(err)
			}
			cfg := w.Config()
			installCACPPT(t, w, &cfg, "v0.5.13") // with which a rollout ends
			tt.change(t, w, &cfg)
			live := func() *unstructured.Unstructured {
				return w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
			}
			version := live().GetResourceVersion()
			applied := func(consent bool) error {
				tools := w.Tools()
				tools.Consent = consent
				plan, err := New(cfg, tools)
				if err != nil {
					t.Fatal(err)
				}
				_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: flow.Memory(), Targets: []string{"apply"}})
				return err
			}
			err := applied(false)
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("it was applied unasked")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if live().GetResourceVersion() != version {
				t.Error("the control plane was changed all the same")
			}
			if err := applied(true); err != nil {
				t.Fatalf("refused with consent: %v", err)
			}
			if live().GetResourceVersion() == version {
				t.Error("with consent nothing was applied")
			}
		})
	}
}

// A control plane goes up one minor version of Kubernetes after another and never down: consent does not change that.
func TestVersionsThatNoConsentBrings(t *testing.T) {
	for live, want := range map[string]string{
		"v1.36.1": "Kubernetes has no way back from v1.36.1 to v1.35.4",
		"v1.33.4": "from Kubernetes v1.33.4 to v1.35.4 a control plane goes through every minor version",
		"v1.34.4": "",
	} {
		w := clustertest.New(t)
		if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
			t.Fatal(err)
		}
		w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
			clustertest.Map{"spec": clustertest.Map{"version": live}})
		tools := w.Tools()
		tools.Consent = true
		plan, err := New(w.Config(), tools)
		if err != nil {
			t.Fatal(err)
		}
		_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: flow.Memory(), Targets: []string{"apply"}})
		is := capi.Text(w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane"), "spec",
			"version")
		switch {
		case want == "":
			if err != nil || is != w.Config().KubernetesVersion {
				t.Errorf("from %s: %s, %v", live, is, err)
			}
		case err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "upgrade"):
			t.Errorf("from %s: %v", live, err)
		case is != live:
			t.Errorf("from %s it was changed to %s", live, is)
		}
	}
}
