package steps

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
)

// A cluster whose servers were made without the route keeps its configuration, and plan reports that; an operator's
// own manifest has what it has.
func TestMetadataRouteOfAnOlderCluster(t *testing.T) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 1}}
	journal := flow.Memory()
	if _, err := runTargets(t, w, cfg, w.Tools(), journal, "workers"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	live := func(group, kind, name string) *unstructured.Unstructured {
		return w.Management.Get(group, kind, config.DefaultNamespace, name)
	}
	deployment := func() *unstructured.Unstructured { return live(clustertest.CAPI, "MachineDeployment", "k8s-general") }
	template := func() string {
		name, _, _ := unstructured.NestedString(deployment().Object, "spec", "template", "spec", "bootstrap", "configRef", "name")
		return name
	}
	has := func(o *unstructured.Unstructured) bool {
		spec, err := json.Marshal(o.Object["spec"])
		return err == nil && strings.Contains(string(spec), "169.254.169.254/32")
	}
	plane := func() *unstructured.Unstructured {
		return live(clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane")
	}
	pool := func() *unstructured.Unstructured { return live(clustertest.CABPT, "TalosConfigTemplate", template()) }
	if !has(plane()) || !has(pool()) {
		t.Fatal("a new cluster has no route")
	}
	// As an older release made it.
	strip := func(o *unstructured.Unstructured, path ...string) {
		patches, _, err := unstructured.NestedStringSlice(o.Object, path...)
		if err != nil || len(patches) == 0 {
			t.Fatalf("%v, %v", patches, err)
		}
		patches = slices.DeleteFunc(patches, func(p string) bool { return strings.Contains(p, "169.254.169.254") })
		if err := unstructured.SetNestedStringSlice(o.Object, patches, path...); err != nil {
			t.Fatal(err)
		}
	}
	tcp := plane()
	strip(tcp, "spec", "controlPlaneConfig", "controlplane", "strategicPatches")
	w.Management.Put(tcp)
	older := pool()
	strip(older, "spec", "template", "spec", "strategicPatches")
	name, err := render.NameByContent("k8s-general", older)
	if err != nil {
		t.Fatal(err)
	}
	older.SetName(name)
	w.Management.Put(older)
	w.Management.Change(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-general", clustertest.Map{
		"spec": clustertest.Map{"template": clustertest.Map{"spec": clustertest.Map{"bootstrap": clustertest.Map{
			"configRef": clustertest.Map{"name": name}}}}}})

	set := planner(t, "")
	manager, err := kube.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	r, err := changes.RenderForCluster(t.Context(), cfg, w.Tools(), set.sources, manager)
	if err != nil || has(find(t, r.Now, "TalosControlPlane")) {
		t.Errorf("the plan would add the route: %v", err)
	}
	placement, err := situation.LivePlacement(t.Context(), cfg, manager)
	if err != nil || !slices.Equal(placement.Seen(), []string{config.SeenNoMetadataRoute}) {
		t.Errorf("it is not told of: %+v, %v", placement, err)
	}
	if _, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "workers"); err != nil {
		t.Fatal(err)
	}
	if has(plane()) {
		t.Error("a run has added the route to the control plane, which replaces its servers")
	}
	if template() != name {
		t.Error("a run has added the route to the workers, which replaces them")
	}
}
