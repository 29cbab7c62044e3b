package capi_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

func TestOwnersComeFirst(t *testing.T) {
	made := func(apiVersion, kind, name string, owners ...string) unstructured.Unstructured {
		o := kubetest.Object(apiVersion, kind, namespace, name, nil)
		o.SetUID(types.UID(name))
		var refs []metav1.OwnerReference
		for _, owner := range owners {
			refs = append(refs, metav1.OwnerReference{APIVersion: "x/v1", Kind: "X", Name: owner, UID: types.UID(owner)})
		}
		o.SetOwnerReferences(refs)
		return *o
	}
	const core = "cluster.x-k8s.io/v1beta1"
	ordered := capi.OwnersFirst([]unstructured.Unstructured{
		made("v1", "Secret", "m1-bootstrap-data", "config"),
		made("x/v1", "TalosConfig", "config", "m1"),
		made("v1", "Secret", "k8s-kubeconfig"), // by its name
		made(core, "Machine", "m1", "plane", "k8s", "elsewhere"),
		made("x/v1", "TalosControlPlane", "plane", "k8s"),
		made("x/v1", "Template", "template", "class", "k8s"),
		made(core, "Cluster", "k8s"),
		made(core, "ClusterClass", "class"),
		made("v1", "ConfigMap", "a", "b"), // own each other
		made("v1", "ConfigMap", "b", "a"),
	})
	at := func(name string) int {
		return slices.IndexFunc(ordered, func(o unstructured.Unstructured) bool { return o.GetName() == name })
	}
	for _, pair := range [][2]string{{"class", "k8s"}, {"class", "template"}, {"k8s", "template"},
		{"k8s", "k8s-kubeconfig"}, {"k8s", "plane"}, {"plane", "m1"}, {"m1", "config"}, {"config", "m1-bootstrap-data"}, {"k8s", "a"}, {"k8s", "b"}} {
		if at(pair[0]) > at(pair[1]) || at(pair[0]) < 0 {
			t.Errorf("%s is not before %s: %v", pair[0], pair[1], names(ordered))
		}
	}
	if len(ordered) != 10 {
		t.Errorf("%d objects: %v", len(ordered), names(ordered))
	}
}
