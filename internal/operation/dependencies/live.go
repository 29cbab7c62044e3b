package dependencies

import (
	"context"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Live reads the objects of a cluster. A kind that the cluster does not have has no objects.
func Live(ctx context.Context, c *kube.Cluster) (*Tree, error) {
	t := &Tree{Source: "the cluster " + c.Host()}
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: HelmRelease},
		{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: Kustomization},
		{Group: "batch", Version: "v1", Kind: "Job"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := c.List(ctx, list); kube.Absent(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("list the %ss of %s: %w", gvk.Kind, c.Host(), err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			o.SetGroupVersionKind(gvk)
			if err := t.addLive(o); err != nil {
				return nil, fmt.Errorf("read %s of %s: %w", kube.Describe(o), c.Host(), err)
			}
		}
	}
	t.Ignored = 0 // Jobs
	t.sorted()
	return t, nil
}

// addLive adds an object as if it was in a file: JSON is YAML.
func (t *Tree) addLive(o *unstructured.Unstructured) error {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return err
	}
	return t.add(document.Content[0], origin{}, o.GetNamespace())
}
