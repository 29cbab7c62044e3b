package steps

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

func upToDate(status, message string) clustertest.Map {
	return clustertest.Map{"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "MachinesSpecUpToDate",
		"status": status, "message": message}}}}
}

func TestRollingIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		tcp  clustertest.Map
		want string
	}{
		"never looked at": {clustertest.Map{"metadata": clustertest.Map{"generation": int64(1)}}, ""},
		"looked at": {clustertest.Map{"metadata": clustertest.Map{"generation": int64(2)},
			"status": clustertest.Map{"observedGeneration": int64(2)}}, ""},
		"changed since": {clustertest.Map{"metadata": clustertest.Map{"generation": int64(3)},
			"status": clustertest.Map{"observedGeneration": int64(2)}}, "has not looked at the last change"},
		"replaces its servers": {upToDate("False", "Rolling 2 replicas with outdated spec (1 replicas up to date)"),
			"are being replaced, one after another (Rolling 2 replicas"},
		"has replaced them": {upToDate("True", ""), ""},
		"on deletion only": {clustertest.Map{"spec": clustertest.Map{"rolloutStrategy": clustertest.Map{"type": "OnDelete"}},
			"status": upToDate("False", "")["status"]}, ""},
	} {
		if got := capi.Rolling(&unstructured.Unstructured{Object: tt.tcp}); tt.want == "" && got != "" ||
			!strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// While servers are replaced nothing is called done, also when their number is right: the talosconfig names those that
// stay.
func TestARolloutIsWaitedFor(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		upToDate("False", "Rolling 1 replicas"))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-3", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}},
		"status": clustertest.Map{"nodeRef": clustertest.Map{"name": "gone"},
			"addresses": []any{clustertest.Map{"type": "InternalIP", "address": "10.10.64.8"}}},
	}))
	var waited sync.Map
	var end, last sync.Once
	_, err := runPlan(t, w, w.Config(), journal, func(e flow.Event) {
		if e.Kind == flow.StepProgress && e.Step == "talosconfig" &&
			strings.Contains(e.Message, "4 control plane Machines instead of 3") {
			last.Do(func() {
				w.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-3")
			})
		}
		if e.Kind != flow.StepProgress || !strings.Contains(e.Message, "being replaced") {
			return
		}
		waited.Store(e.Step, true)
		_, first := waited.Load("talosconfig")
		_, second := waited.Load("wait-nodes")
		if first && second {
			end.Do(func() {
				w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-2",
					clustertest.Map{"status": clustertest.Map{"addresses": []any{
						clustertest.Map{"type": "InternalIP", "address": "10.10.64.9"},
						clustertest.Map{"type": "ExternalIP", "address": "127.0.1.2"}}}})
				w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
					upToDate("True", ""))
			})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := platform.FilesIn(filepath.Join(w.State, "state")).Read(platform.Talosconfig)
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := talos.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	_, nodes := credentials.Targets()
	if want := []string{"10.10.64.2", "10.10.64.3", "10.10.64.9"}; !slices.Equal(nodes, want) {
		t.Errorf("the talosconfig names %v, want %v", nodes, want)
	}
	report, err := runPlan(t, w, w.Config(), journal, nil)
	if err != nil || len(ran(report)) > 0 {
		t.Errorf("after the rollout %v ran, %v", ran(report), err)
	}
}
