package steps

import (
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// The step cilium is done, and stays so, when the agents are ready; what else the chart has is waited for at the end.
func TestCiliumWaitsForItsAgents(t *testing.T) {
	w := clustertest.New(t)
	const namespace = "kube-system"
	var available atomic.Bool
	w.Workload.React = func(o *unstructured.Unstructured) {
		if o.GetName() != clustertest.HubbleUI || available.Load() {
			w.ReactWorkload(o)
		}
	}
	journal := flow.Memory()
	for run, want := range []flow.Outcome{flow.Ran, flow.Reused} {
		report, err := runTargets(t, w, w.Config(), w.Tools(), journal, "cilium")
		if err != nil {
			t.Fatal(err)
		}
		if step, _ := report.Step("cilium"); step.Outcome != want {
			t.Errorf("run %d: cilium %s, not %s", run+1, step.Outcome, want)
		}
	}
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	waited := false
	_, err = clustertest.Run(t, plan.Graph, []string{"wait-releases"}, journal, func(e flow.Event) {
		if e.Step == "wait-releases" && strings.Contains(e.Message, clustertest.HubbleUI) && !waited {
			waited = true
			available.Store(true)
			w.ReactWorkload(w.Workload.Get("apps/v1", "Deployment", namespace, clustertest.HubbleUI))
		}
	})
	if err != nil || !waited {
		t.Errorf("wait-releases did not wait for %s: %v", clustertest.HubbleUI, err)
	}
}
