package flux

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// HelmReleaseKind is the kind by which the helm-controller manages a Helm release.
var HelmReleaseKind = schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}

// Manages names the HelmRelease that manages a Helm release: "HelmRelease flux-system/cilium"; empty: none does. One
// that has not installed, upgraded or taken it over yet does not.
func Manages(ctx context.Context, c *kube.Cluster, namespace, release string) (string, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(HelmReleaseKind.GroupVersion().WithKind(HelmReleaseKind.Kind + "List"))
	err := c.List(ctx, all)
	if kube.Absent(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("ask whether Flux manages Helm release %s/%s: %w", namespace, release, err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		history, _, _ := unstructured.NestedSlice(o.Object, "status", "history")
		if len(history) == 0 || textOf(o, "status", "storageNamespace") != namespace || o.GetDeletionTimestamp() != nil {
			continue
		}
		if newest, ok := history[0].(map[string]any); ok && newest["name"] == release && newest["namespace"] == namespace {
			return kube.Describe(o), nil
		}
	}
	return "", nil
}
