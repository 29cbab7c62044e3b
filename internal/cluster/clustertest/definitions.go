package clustertest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// Define makes a server tell of its kinds as Cluster API's definitions do.
func Define(s *kubetest.Server, kinds []kubetest.Resource) {
	for _, k := range kinds {
		definition := CRD(k.Plural, k.Group, k.Version, k.Kind)
		if k.Kind == "Provider" {
			definition.SetLabels(nil) // clusterctl's own; not moved
		}
		s.Put(definition)
	}
}

// CRD is Cluster API's definition of a kind.
func CRD(plural, group, version, kind string) *unstructured.Unstructured {
	return kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, Map{
		"metadata": Map{"labels": Map{"clusterctl.cluster.x-k8s.io": ""}},
		"spec": Map{"group": group, "scope": "Namespaced", "names": Map{"kind": kind},
			"versions": []any{Map{"name": version, "storage": true}}},
	})
}
