package situation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/connect"
)

// PausedAnnotation pauses the controllers of one object. CACPPT respects it on a TalosControlPlane.
const PausedAnnotation = "cluster.x-k8s.io/paused"

// OrEmpty is an object without fields in place of nil.
func OrEmpty(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o == nil {
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return o
}

// AtRest reports that the operator has paused what Cluster API does with it.
func AtRest(cluster, tcp *unstructured.Unstructured) bool {
	_, of := cluster.GetAnnotations()[PausedAnnotation]
	_, its := tcp.GetAnnotations()[PausedAnnotation]
	return of || its || connect.Paused(cluster)
}

// TalosConfigSpec is a TalosConfigSpec of an object, without what says nothing: the providers write a type that is ""
// and a hostname without fields where there is none.
func TalosConfigSpec(o *unstructured.Unstructured, fields ...string) map[string]any {
	spec, _, _ := unstructured.NestedMap(o.Object, fields...)
	maps.DeleteFunc(spec, func(_ string, v any) bool {
		inner, isMap := v.(map[string]any)
		return v == nil || v == "" || isMap && len(inner) == 0
	})
	return spec
}

// Named is the object of a name; an empty one where there is none.
func Named(all []unstructured.Unstructured, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(all, func(o unstructured.Unstructured) bool { return o.GetName() == name })
	if i < 0 {
		return OrEmpty(nil)
	}
	return &all[i]
}
