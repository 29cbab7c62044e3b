package situation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return &all[i]
}
