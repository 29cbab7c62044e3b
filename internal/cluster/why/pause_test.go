package why

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// A pause that an upgrade or another operation has made is not to be removed by hand; any other is.
func TestWhoPausesTheCluster(t *testing.T) {
	annotated := func(annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "TalosControlPlane",
			"metadata": map[string]any{"annotations": annotations}}}
	}
	held := map[string]any{capi.PausedAnnotation: "true", capi.UpgradeHeldAnnotation: "true"}
	paused := map[string]any{capi.PausedAnnotation: "true"}
	for name, tt := range map[string]struct {
		of       Situation
		what, do string
	}{
		"an operator": {Situation{ControlPlane: annotated(paused)}, "paused, so its controllers do nothing", "remove"},
		"an upgrade's hold": {Situation{ControlPlane: annotated(held)}, "an upgrade holds it until the new server is a " +
			"Ready node",
			"run the upgrade that was begun again"},
		"a pivot": {Situation{Pauses: "pivot", Cluster: &unstructured.Unstructured{Object: map[string]any{"kind": "Cluster",
			"spec": map[string]any{"paused": true}}}}, "paused by pivot, which has not ended", ""},
	} {
		var found findings
		tt.of.blamePause(&found)
		if len(found) != 1 {
			t.Fatalf("%s: %+v", name, found)
		}
		f := found[0]
		if !strings.Contains(f.What, tt.what) || !strings.Contains(f.Do, tt.do) ||
			tt.do != "remove" && strings.Contains(f.Do, "remove") {
			t.Errorf("%s: %q, to do %q", name, f.What, f.Do)
		}
	}
}
