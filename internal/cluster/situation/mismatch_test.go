package situation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// TestUnnamed: a node whose hostname Talos generated differs from one whose server has such a name.
func TestUnnamed(t *testing.T) {
	machine := func(name, server, address string) unstructured.Unstructured {
		m := unstructured.Unstructured{Object: map[string]any{
			"spec":   map[string]any{"infrastructureRef": map[string]any{"name": server}},
			"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": address}}}}}
		m.SetName(name)
		m.SetLabels(map[string]string{capi.ControlPlaneLabel: ""})
		return m
	}
	machines := []unstructured.Unstructured{machine("m1", "k8s-control-plane-1", "10.10.64.2"),
		machine("m2", "talos-control-plane-2", "10.10.64.3")}
	node := func(name, address, providerID string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now())},
			Spec:   corev1.NodeSpec{ProviderID: providerID},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
	}
	for name, tt := range map[string]struct {
		node    *corev1.Node
		machine string
	}{
		"unnamed":                           {node("talos-1a2-b3c", "10.10.64.2", ""), "m1"},
		"made of its address":               {node("10-10-64-2", "10.10.64.2", ""), "m1"},
		"its server's name":                 {node("k8s-control-plane-1", "10.10.64.2", ""), ""},
		"a cluster called talos":            {node("talos-control-plane-2", "10.10.64.3", ""), ""},
		"of no Machine":                     {node("talos-1a2-b3c", "10.10.64.7", ""), ""},
		"known to the CCM":                  {node("talos-1a2-b3c", "10.10.64.2", "hcloud://1"), ""},
		"its address has not been reported": {node("talos-1a2-b3c", "", ""), ""},
	} {
		is := ""
		if m := Unnamed(tt.node, machines); m != nil {
			is = m.GetName()
		}
		says := MismatchProblem(tt.node, machines)
		if is != tt.machine || (says != "") != (is != "") || is != "" && !strings.Contains(says, "replace-machine m1") {
			t.Errorf("%s: Machine %q, %q", name, is, says)
		}
	}
}

// TestRecreatedServer: a node that kept the provider ID of a server before it was created again is a mismatch, unless
// its Machine is being deleted or it has no provider ID yet. Since is the time of Cluster API's condition.
func TestRecreatedServer(t *testing.T) {
	const noticed = "2026-02-03T04:05:06Z"
	machine := func(change func(*unstructured.Unstructured)) unstructured.Unstructured {
		m := unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"providerID": "hcloud://2",
				"infrastructureRef": map[string]any{"name": "k8s-general-1"}},
			"status": map[string]any{"nodeRef": map[string]any{"name": "k8s-general-1"}, "conditions": []any{
				map[string]any{"type": "NodeHealthy", "status": "False", "lastTransitionTime": noticed}}}}}
		m.SetName("m1")
		m.SetNamespace("default")
		change(&m)
		return m
	}
	node := func(providerID string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "k8s-general-1"},
			Spec: corev1.NodeSpec{ProviderID: providerID}}
	}
	none := func(*unstructured.Unstructured) {}
	for name, tt := range map[string]struct {
		providerID string
		change     func(*unstructured.Unstructured)
		says       string
	}{
		"a worker": {"hcloud://1", none, "kubectl --namespace default delete machine m1"},
		"of the control plane": {"hcloud://1", func(m *unstructured.Unstructured) {
			m.SetLabels(map[string]string{capi.ControlPlaneLabel: ""})
		}, "replace-machine m1"},
		"the same server": {"hcloud://2", none, ""},
		"no provider ID":  {"", none, ""},
		"it is being deleted": {"hcloud://1", func(m *unstructured.Unstructured) {
			now := metav1.Now()
			m.SetDeletionTimestamp(&now)
		}, ""},
		"of another node": {"hcloud://1", func(m *unstructured.Unstructured) {
			m.Object["status"].(map[string]any)["nodeRef"] = map[string]any{"name": "k8s-general-2"}
		}, ""},
	} {
		says := ""
		if m := mismatchOf(node(tt.providerID), []unstructured.Unstructured{machine(tt.change)}); m != nil {
			do, target := m.Do()
			says = m.String() + ": " + do + ": " + strings.Join(target, " ")
		}
		if !strings.Contains(says, tt.says) || (says != "") != (tt.says != "") {
			t.Errorf("%s: %q", name, says)
		}
	}
	m := mismatchOf(node("hcloud://1"), []unstructured.Unstructured{machine(none)})
	if m == nil || m.Since.Format(time.RFC3339) != noticed || m.ProviderID != "hcloud://2" || m.Server != "k8s-general-1" {
		t.Errorf("%+v", m)
	}
	unseen := machine(func(m *unstructured.Unstructured) { delete(m.Object["status"].(map[string]any), "conditions") })
	if m := mismatchOf(node("hcloud://1"), []unstructured.Unstructured{unseen}); m == nil || !m.Since.IsZero() {
		t.Errorf("before Cluster API has noticed: %+v", m)
	}
}
