package clustertest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

const CABPT = "bootstrap.cluster.x-k8s.io/v1alpha3"

func CRD(plural, group, version, kind string) *unstructured.Unstructured {
	return kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"clusterctl.cluster.x-k8s.io": ""}},
		"spec": map[string]any{"group": group, "scope": "Namespaced", "names": map[string]any{"kind": kind},
			"versions": []any{map[string]any{"name": version, "storage": true}}},
	})
}
