package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// minimal is an object of a kind with everything that its definition's schema requires, and nothing else. The API
// server holds an object against the schema before it calls the validating webhooks: one that lacks a required field is
// refused without them.
func (c *Cluster) minimal(ctx context.Context, mapping *meta.RESTMapping) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind)
	name := mapping.Resource.GroupResource().String()
	if err := c.Get(ctx, client.ObjectKey{Name: name}, definition); Absent(err) {
		return o, nil // a kind of every cluster
	} else if err != nil {
		return nil, fmt.Errorf("get the definition %s: %w", name, err)
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, version := range versions {
		v, _ := version.(map[string]any)
		if v["name"] != mapping.GroupVersionKind.Version {
			continue
		}
		schema, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema", "properties", "spec")
		if spec, ok := least(schema).(map[string]any); ok {
			o.Object["spec"] = spec
		}
	}
	return o, nil
}

// least is the least value of a schema of OpenAPI version 3 as custom resource definitions have it: its default, the
// first of an enumeration, or the required fields alone. Patterns and formats are not obeyed.
func least(schema map[string]any) any {
	if value, ok := schema["default"]; ok {
		return value
	}
	if values, _ := schema["enum"].([]any); len(values) > 0 {
		return values[0]
	}
	switch schema["type"] {
	case "string":
		return probeName
	case "integer", "number":
		if least, ok := schema["minimum"]; ok {
			return least
		}
		return int64(1)
	case "boolean":
		return false
	case "array":
		if number, _ := schema["minItems"].(int64); number > 0 {
			return []any{leastOf(schema["items"])}
		}
		return []any{}
	}
	if either, _ := schema["x-kubernetes-int-or-string"].(bool); either {
		return int64(1)
	}
	return leastObject(schema)
}

func leastOf(schema any) any {
	s, _ := schema.(map[string]any)
	return least(s)
}

func leastObject(schema map[string]any) map[string]any {
	object := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if name, ok := name.(string); ok {
			object[name] = leastOf(properties[name])
		}
	}
	return object
}
