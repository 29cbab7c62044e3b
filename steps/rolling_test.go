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
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/platform"
)

func upToDate(status, message string) object {
	return object{"status": object{"conditions": []any{object{"type": "MachinesSpecUpToDate", "status": status, "message": message}}}}
}

func TestRollingIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		tcp  object
		want string
	}{
		"never looked at":      {object{"metadata": object{"generation": int64(1)}}, ""},
		"looked at":            {object{"metadata": object{"generation": int64(2)}, "status": object{"observedGeneration": int64(2)}}, ""},
		"changed since":        {object{"metadata": object{"generation": int64(3)}, "status": object{"observedGeneration": int64(2)}}, "has not looked at the last change"},
		"replaces its servers": {upToDate("False", "Rolling 2 replicas with outdated spec (1 replicas up to date)"), "are being replaced, one after another (Rolling 2 replicas"},
		"has replaced them":    {upToDate("True", ""), ""},
		"on deletion only": {object{"spec": object{"rolloutStrategy": object{"type": "OnDelete"}},
			"status": upToDate("False", "")["status"]}, ""},
	} {
		if got := capi.Rolling(&unstructured.Unstructured{Object: tt.tcp}); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// While servers are replaced nothing is called done, also when their number is right: the talosconfig names those that stay.
func TestARolloutIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	w.mgmt.Change(cacpt, "TalosControlPlane", config.Namespace, "k8s-control-plane", upToDate("False", "Rolling 1 replicas"))
	w.mgmt.Put(kubetest.Object(capiAPI, "Machine", config.Namespace, "k8s-control-plane-3", object{
		"metadata": object{"labels": object{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}},
		"status":   object{"nodeRef": object{"name": "gone"}, "addresses": []any{object{"type": "InternalIP", "address": "10.10.64.8"}}},
	}))
	var waited sync.Map
	var end, last sync.Once
	_, err := runPlan(t, w, w.config(), journal, func(e flow.Event) {
		if e.Kind == flow.StepProgress && e.Step == "talosconfig" && strings.Contains(e.Message, "4 control plane Machines instead of 3") {
			last.Do(func() { w.mgmt.Remove(capiAPI, "Machine", config.Namespace, "k8s-control-plane-3") })
		}
		if e.Kind != flow.StepProgress || !strings.Contains(e.Message, "being replaced") {
			return
		}
		waited.Store(e.Step, true)
		_, first := waited.Load("talosconfig")
		_, second := waited.Load("wait-nodes")
		if first && second {
			end.Do(func() {
				w.mgmt.Change(capiAPI, "Machine", config.Namespace, "k8s-control-plane-2", object{"status": object{"addresses": []any{
					object{"type": "InternalIP", "address": "10.10.64.9"}, object{"type": "ExternalIP", "address": "127.0.1.2"}}}})
				w.mgmt.Change(cacpt, "TalosControlPlane", config.Namespace, "k8s-control-plane", upToDate("True", ""))
			})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := platform.FilesIn(filepath.Join(w.state, "state")).Read(platform.Talosconfig)
	if err != nil {
		t.Fatal(err)
	}
	is, err := describeTalosconfig(data)
	if want := []string{"10.10.64.2", "10.10.64.3", "10.10.64.9"}; err != nil || !slices.Equal(is.nodes, want) {
		t.Errorf("the talosconfig names %v, want %v; %v", is.nodes, want, err)
	}
	report, err := runPlan(t, w, w.config(), journal, nil)
	if err != nil || len(ran(report)) > 0 {
		t.Errorf("after the rollout %v ran, %v", ran(report), err)
	}
}
