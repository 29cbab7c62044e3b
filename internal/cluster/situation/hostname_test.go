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

// TestUnnamed: a node with a hostname of Talos's own is told from one whose server is called like that.
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
		says := UnnamedProblem(tt.node, machines)
		if is != tt.machine || (says != "") != (is != "") || is != "" && !strings.Contains(says, "replace-machine m1") {
			t.Errorf("%s: Machine %q, %q", name, is, says)
		}
	}
}
