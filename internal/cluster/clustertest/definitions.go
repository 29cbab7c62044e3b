package clustertest

import (
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// Define makes a server tell of its kinds as Cluster API's definitions do.
func Define(s *kubetest.Server, kinds []kubetest.Resource) {
	for _, k := range kinds {
		labels := Map{"clusterctl.cluster.x-k8s.io": ""}
		if k.Kind == "Provider" {
			labels = Map{} // clusterctl's own; not moved
		}
		s.Put(kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", k.Plural+"."+k.Group, Map{
			"metadata": Map{"labels": labels},
			"spec": Map{"group": k.Group, "scope": "Namespaced", "names": Map{"kind": k.Kind},
				"versions": []any{Map{"name": k.Version, "storage": true}}},
		}))
	}
}
