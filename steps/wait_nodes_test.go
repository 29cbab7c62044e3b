package steps

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
)

// goodNode is what every node should be; its server is hcloud://1.
func goodNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{capi.ControlPlaneRole: ""}},
		Spec:       corev1.NodeSpec{ProviderID: "hcloud://1"},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.35.4"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"},
				{Type: corev1.NodeInternalIP, Address: "10.10.64.2"}},
		},
	}
}

func TestNodeProblems(t *testing.T) {
	servers := map[string]hetzner.Server{"hcloud://1": {ID: 1, Name: "a"}, "hcloud://2": {ID: 2, Name: "b"}}
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"none": {func(*corev1.Node) {}, ""},
		"no CNI": {func(n *corev1.Node) {
			n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
				Reason: "KubeletNotReady", Message: "cni plugin not initialized"}
		}, "cni plugin not initialized"},
		"kubelet lost": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
			"not Ready"},
		"no report":      {func(n *corev1.Node) { n.Status.Conditions = nil }, "has not reported"},
		"no provider ID": {func(n *corev1.Node) { n.Spec.ProviderID = "" }, "no provider ID"},
		"another cloud's": {func(n *corev1.Node) { n.Spec.ProviderID = "kind://docker/k8s/a" },
			"none of the cluster's servers"},
		"server that is gone": {func(n *corev1.Node) { n.Spec.ProviderID = "hcloud://9" }, "none of the cluster's " +
			"servers"},
		"another node's server": {func(n *corev1.Node) { n.Spec.ProviderID = "hcloud://2" }, "is the server b"},
		"not initialized":       {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: situation.UninitializedTaint}} }, situation.UninitializedTaint},
		"excluded from balancers": {func(n *corev1.Node) { n.Labels[situation.ExcludeFromBalancer] = "" },
			situation.ExcludeFromBalancer},
		"address of another net": {func(n *corev1.Node) { n.Status.Addresses[1].Address = "192.168.0.5" },
			"not in the network 10.10.0.0/16"},
		"no address": {func(n *corev1.Node) { n.Status.Addresses = nil }, "not in the network"},
		"old version in a rollout": {func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.34.0" },
			"v1.34.0 instead of v1.35.4"},
	} {
		t.Run(name, func(t *testing.T) {
			n := goodNode()
			tt.change(n)
			got := strings.Join(situation.NodeProblems(n, servers, netip.MustParsePrefix("10.10.0.0/16"), "v1.35.4"), ", ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNodesWithoutAPlace(t *testing.T) {
	placed := goodNode()
	placed.Labels[corev1.LabelTopologyRegion], placed.Labels[corev1.LabelTopologyZone] = "nbg1", "nbg1-dc3"
	if note := (rollout.State{Nodes: []corev1.Node{*placed}}).MissingTopologyLabels(); note != "" {
		t.Errorf("a note on a node that says where it stands: %s", note)
	}
	empty := placed.DeepCopy()
	empty.Name, empty.Labels[corev1.LabelTopologyZone] = "b", ""
	note := rollout.State{Nodes: []corev1.Node{*placed, *empty}}.MissingTopologyLabels()
	if !strings.HasPrefix(note, "note: b without") || !strings.Contains(note, "1.29.2") {
		t.Errorf("the note %q", note)
	}

	w := clustertest.New(t) // its nodes have no such labels
	said := 0
	_, err := runPlan(t, w, w.Config(), flow.Memory(), func(e flow.Event) {
		if e.Kind == flow.StepProgress && e.Step == "wait-nodes" &&
			strings.HasPrefix(e.Message, "note: k8s-control-plane-0, ") {
			said++
		}
	})
	if err != nil || said != 1 {
		t.Errorf("said %d times, %v", said, err)
	}
}

// TestPublicAddressInANodeLater: the cloud controller manager takes the taint away first and writes addresses after it.
// wait-nodes may end in between, and a run after it has nothing to do.
func TestPublicAddressInANodeLater(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		w.Workload.Change("v1", "Node", "", fmt.Sprint("k8s-control-plane-", i), clustertest.Map{"status": clustertest.Map{
			"addresses": []any{
				clustertest.Map{"type": "InternalIP", "address": fmt.Sprint("10.10.64.", 2+i)},
				clustertest.Map{"type": "ExternalIP", "address": fmt.Sprint("127.0.1.", i)},
			}}})
	}
	var nodes Nodes
	plan, err := New(w.Config(), w.Tools())
	if err == nil {
		nodes, _, err = flow.Restore(t.Context(), journal, plan.Nodes)
	}
	if err != nil || len(nodes.Nodes) != 3 || nodes.Nodes[2].ExternalIP != "127.0.1.2" {
		t.Errorf("the recorded nodes are %+v, %v", nodes, err)
	}
	report, err := runPlan(t, w, w.Config(), journal, nil)
	if err != nil || len(ran(report)) > 0 {
		t.Errorf("once the nodes name their public addresses, %v ran, %v", ran(report), err)
	}
}

func TestRollHasToAgree(t *testing.T) {
	machine := func(name, node string) unstructured.Unstructured {
		return *kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, clustertest.Map{
			"metadata": clustertest.Map{"labels": clustertest.Map{capi.ControlPlaneLabel: ""}},
			"status":   clustertest.Map{"nodeRef": clustertest.Map{"name": node}},
		})
	}
	good := rollout.State{
		Replicas: 1, Version: "v1.35.4", Nodes: []corev1.Node{*goodNode()},
		Machines: []unstructured.Unstructured{machine("m", "a")}, Servers: []hetzner.Server{{ID: 1, Name: "a"}},
	}
	if missing := good.Missing("10.10.0.0/16"); len(missing) > 0 {
		t.Fatalf("missing %v", missing)
	}
	for name, tt := range map[string]struct {
		change func(*rollout.State)
		want   string
	}{
		"scaled up":      {func(r *rollout.State) { r.Replicas = 3 }, "1 control plane Machines instead of 3"},
		"node not there": {func(r *rollout.State) { r.Nodes = nil }, "0 control plane nodes for 1 Machines"},
		"server without a Machine": {func(r *rollout.State) {
			r.Servers = append(r.Servers,
				hetzner.Server{ID: 5, Name: "x"})
		}, "2 control plane servers for 1 Machines"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			r.Machines = slices.Clone(good.Machines)
			tt.change(&r)
			if got := strings.Join(r.Missing("10.10.0.0/16"), "; "); !strings.Contains(got, tt.want) {
				t.Errorf("missing %q, want %q", got, tt.want)
			}
		})
	}
}
