package steps

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// The nodes are complete before Cluster API knows them; what needs that waits for it in a step of its own.
func TestMachinesAfterNodes(t *testing.T) {
	w := clustertest.New(t)
	known := func(to string) {
		for i := range 3 {
			name := fmt.Sprintf("k8s-control-plane-%d", i)
			var ref any
			if to != "" {
				ref = clustertest.Map{"name": to + fmt.Sprint(i)}
			}
			w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, name,
				clustertest.Map{"status": clustertest.Map{"nodeRef": ref}})
		}
	}
	var seen atomic.Bool
	w.Workload.React = func(o *unstructured.Unstructured) {
		w.ReactWorkload(o)
		if !seen.Load() {
			known("")
		}
	}
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	var nodes, waited bool
	_, err = clustertest.Run(t, plan.Graph, []string{"wait-machines"}, flow.Memory(), func(e flow.Event) {
		nodes = nodes || e.Kind == flow.StepDone && e.Step == "wait-nodes"
		if e.Kind == flow.StepProgress && e.Step == "wait-machines" &&
			strings.Contains(e.Message, "has not seen the nodes of Machines k8s-control-plane-0, k8s-control-plane-1") {
			waited = nodes
			seen.Store(true)
			known("k8s-control-plane-")
		}
	})
	if err != nil || !waited {
		t.Errorf("wait-machines did not wait after wait-nodes was done: %v", err)
	}
	set := newSet(w.Config(), w.Tools(), render.Sources{})
	verify := verifyIn(set, platform.ManagementKubeconfig, set.verifyMachines)
	if v := verify(t.Context(), Machines{}); v.Answer() != flow.AnswerHolds {
		t.Errorf("verify answers %v", v)
	}
	known("")
	if v := verify(t.Context(), Machines{}); v.Answer() != flow.AnswerGone {
		t.Errorf("without its nodes, verify answers %v", v)
	}
}
