package steps

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
)

// tolerates tells whether the tolerations at a path of the values let a Pod onto a node with the taint.
func tolerates(t *testing.T, values map[string]any, taint corev1.Taint, path ...string) bool {
	t.Helper()
	listed, _, err := unstructured.NestedSlice(values, path...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(listed, func(entry any) bool {
		var toleration corev1.Toleration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(entry.(map[string]any), &toleration); err != nil {
			t.Fatal(err)
		}
		return toleration.ToleratesTaint(klog.Background(), &taint, false)
	})
}

// TestReleasesDoNotWaitForEachOther holds that each release can become ready by itself: they are installed at the same
// time where they may, and one after another with --parallel 1.
func TestReleasesDoNotWaitForEachOther(t *testing.T) {
	b := planner(t, "")
	cilium, err := render.CiliumChart(b.cfg, b.sources).Values.Values(b.sources.Vars)
	if err != nil {
		t.Fatal(err)
	}
	uninitialized := corev1.Taint{Key: situation.UninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	for _, name := range []string{"relay", "ui"} {
		if !tolerates(t, cilium, uninitialized, "hubble", name, "tolerations") {
			t.Errorf("Hubble's %s waits for the Hetzner CCM, and the step cilium for it", name)
		}
	}
	ccm, err := render.HCloudCCMChart(b.cfg, b.sources).Values.Values(b.sources.Vars)
	if err != nil {
		t.Fatal(err)
	}
	if !tolerates(t, ccm, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
		"additionalTolerations") {
		t.Error("the Hetzner CCM waits for Cilium")
	}
	for name, want := range map[string]string{"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": "7445"} {
		if got, _, _ := unstructured.NestedString(ccm, "env", name, "value"); got != want {
			t.Errorf("the Hetzner CCM asks the API server at %s=%q, want %q: before Cilium no Service has an address", name, got,
				want)
		}
	}
}

// TestOperatorsHaveANodeEach holds that there are no more Cilium operators than nodes for them, and never more than
// two.
func TestOperatorsHaveANodeEach(t *testing.T) {
	for replicas, want := range map[string]float64{"1": 1, "3": 2, "5": 2} {
		b := planner(t, "", "CONTROL_PLANE_REPLICAS="+replicas)
		values, err := render.CiliumChart(b.cfg, b.sources).Values.Values(b.sources.Vars)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedFieldNoCopy(values, "operator", "replicas"); got != want {
			t.Errorf("%v operators for %s servers, want %v", got, replicas, want)
		}
	}
}
