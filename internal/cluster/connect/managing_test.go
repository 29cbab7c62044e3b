package connect

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// TestUnsettled waits for the HCloudMachine of a Machine, and for one that has a server; not for one that the control
// plane provider left behind.
func TestUnsettled(t *testing.T) {
	object := func(kind, name string, spec map[string]any) unstructured.Unstructured {
		api := map[string]string{"Machine": "cluster.x-k8s.io/v1beta1",
			"HCloudMachine": "infrastructure.cluster.x-k8s.io/v1beta1"}[kind]
		return unstructured.Unstructured{Object: map[string]any{"apiVersion": api, "kind": kind, "spec": spec,
			"metadata": map[string]any{"name": name, "namespace": "default", "generation": int64(1)},
			"status": map[string]any{"observedGeneration": int64(1), "phase": "Running",
				"nodeRef": map[string]any{"name": name}}}}
	}
	got := Unsettled(capi.Inventory{Moved: []unstructured.Unstructured{
		object("Machine", "one", map[string]any{"infrastructureRef": map[string]any{"name": "a"}}),
		object("HCloudMachine", "a", nil),
		object("HCloudMachine", "left", nil),
		object("HCloudMachine", "lost", map[string]any{"providerID": "hcloud://7"}),
	}})
	if want := []string{"HCloudMachine a: not ready", "HCloudMachine lost: not ready"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
