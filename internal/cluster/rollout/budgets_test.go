package rollout_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

type object = map[string]any

// TestBlocking has one budget of each kind that does or does not stop the drain of node a.
func TestBlocking(t *testing.T) {
	server := kubetest.New("workload")
	t.Cleanup(server.Close)
	budget := func(name string, expected, allowed int) {
		server.Put(kubetest.Object("policy/v1", "PodDisruptionBudget", "shop", name, object{
			"spec": object{"selector": object{"matchLabels": object{"app": name}}},
			"status": object{"expectedPods": expected, "disruptionsAllowed": allowed, "currentHealthy": expected,
				"desiredHealthy": expected - allowed},
		}))
	}
	pod := func(app, node, phase, owner string) {
		meta := object{"labels": object{"app": app}}
		if owner != "" {
			meta["ownerReferences"] = []any{object{"apiVersion": "apps/v1", "kind": owner, "name": app, "uid": "1",
				"controller": true}}
		}
		server.Put(kubetest.Object("v1", "Pod", "shop", app+"-on-"+node, object{"metadata": meta,
			"spec": object{"nodeName": node}, "status": object{"phase": phase}}))
	}
	budget("strict", 2, 0)
	pod("strict", "a", "Running", "ReplicaSet")
	pod("strict", "b", "Running", "ReplicaSet")
	budget("generous", 2, 1)
	pod("generous", "a", "Running", "ReplicaSet")
	budget("elsewhere", 1, 0)
	pod("elsewhere", "b", "Running", "ReplicaSet")
	budget("everywhere", 1, 0)
	pod("everywhere", "a", "Running", "DaemonSet")
	budget("done", 1, 0)
	pod("done", "a", "Succeeded", "Job")
	budget("empty", 0, 0)

	c, err := kube.Connect(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	found, err := rollout.BlockingBudgets(t.Context(), c, []string{"a"})
	if err != nil || len(found) != 1 || found[0].Name != "strict" {
		t.Fatalf("%v, %v", found, err)
	}
	if says := rollout.BudgetSentence(found); !strings.Contains(says, "shop/strict (2 of its Pods are healthy and 2 must "+
		"stay: strict-on-a on a)") {
		t.Error(says)
	}
	if found, err := rollout.BlockingBudgets(t.Context(), c, []string{"c"}); err != nil || len(found) > 0 {
		t.Errorf("of a node without Pods: %v, %v", found, err)
	}
}
