package apply

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// TestFreePods ends the Pods of a server that is gone, once its node takes no new ones; those of a server that exists
// stay.
func TestFreePods(t *testing.T) {
	s, c := connected(t)
	h := hetznertest.New()
	t.Cleanup(h.Close)
	h.Put("servers", 7, map[string]any{"name": "alive"})
	for name, id := range map[string]string{"alive": "hcloud://7", "gone": "hcloud://8"} {
		s.Put(&unstructured.Unstructured{Object: fields{"apiVersion": "v1", "kind": "Node",
			"metadata": fields{"name": name}, "spec": fields{"providerID": id}}})
		s.Put(&unstructured.Unstructured{Object: fields{"apiVersion": "v1", "kind": "Pod",
			"metadata": fields{"name": "on-" + name, "namespace": "default"}, "spec": fields{"nodeName": name}}})
	}
	tools := platform.Tools{Hetzner: h.Client(nil)}
	for _, name := range []string{"alive", "gone", "never"} {
		if err := FreePods(t.Context(), tools, clustertest.Silent, c, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, gone := range map[string]bool{"alive": false, "gone": true} {
		cordoned, _, _ := unstructured.NestedBool(s.Get("v1", "Node", "", name).Object, "spec", "unschedulable")
		if pod := s.Get("v1", "Pod", "default", "on-"+name); cordoned != gone || (pod == nil) != gone {
			t.Errorf("server %s: its node is cordoned: %t, its Pod is %v", name, cordoned, pod)
		}
	}
	var order []string
	for _, w := range s.Writes() {
		order = append(order, w.Method)
	}
	if len(order) != 2 || order[0] != "PATCH" || order[1] != "DELETE" {
		t.Errorf("it wrote %v: the node is cordoned before its Pods are deleted", order)
	}
}
