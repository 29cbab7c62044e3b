package changes

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// frozen are the fields that cannot be changed in an object that exists, by kind: the providers' webhooks refuse it,
// or Kubernetes cannot follow.
var frozen = map[string][]string{
	"HetznerCluster": {
		"spec.hcloudNetwork", "spec.controlPlaneLoadBalancer.enabled", "spec.controlPlaneLoadBalancer.port",
		"spec.controlPlaneLoadBalancer.region", "spec.controlPlaneEndpoint",
	},
	"Cluster": {
		"spec.clusterNetwork", "spec.infrastructureRef.kind", "spec.infrastructureRef.name", "spec.controlPlaneEndpoint",
	},
	"MachineDeployment":   {"spec.selector", "spec.clusterName"},
	"MachineHealthCheck":  {"spec.clusterName"},
	"TalosConfigTemplate": {"spec"},
}

// immutable are the differences in fields that cannot be changed: the field, the live value, the configured one.
func immutable(was, is *unstructured.Unstructured) []string {
	var found []string
	for _, field := range frozen[is.GetKind()] {
		path := strings.Split(field, ".")
		before, there, _ := unstructured.NestedFieldNoCopy(was.Object, path...)
		after, wanted, _ := unstructured.NestedFieldNoCopy(is.Object, path...)
		if !wanted || plain(after) == nil || !there || plain(before) == nil {
			continue // taken out of the manifests, or not set before
		}
		after = plain(after) // an empty value asks for nothing
		found = append(found, changesOf(field, plain(like(before, after)), after, false)...)
	}
	return withoutDefaults(found)
}

// changed are the differences between a live object and the manifests' in what the manifests say. What others have
// added to it, defaults for one, does not count. The values of Secrets are not shown.
func changed(was, is *unstructured.Unstructured) []string {
	secret := is.GetKind() == "Secret"
	var found []string
	for _, field := range slices.Sorted(maps.Keys(is.Object)) {
		switch field {
		case "apiVersion", "kind", "status", "metadata":
			continue
		}
		before, after := like(was.Object[field], is.Object[field]), is.Object[field]
		found = append(found, changesOf(field, plain(before), plain(after), secret)...)
	}
	return withoutDefaults(found)
}

// withoutDefaults leaves out a false or a zero that a live object does not have: webhooks leave such out.
func withoutDefaults(found []string) []string {
	return slices.DeleteFunc(found, func(line string) bool {
		return strings.HasSuffix(line, " (none) → false") || strings.HasSuffix(line, " (none) → 0")
	})
}

// withoutFields leaves out differences of fields.
func withoutFields(found []string, fields ...string) []string {
	return slices.DeleteFunc(found, func(line string) bool {
		return slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(line, f+" ") })
	})
}

// like is what of a live value the wanted one speaks of.
func like(live, wanted any) any {
	switch wanted := wanted.(type) {
	case map[string]any:
		was, ok := live.(map[string]any)
		if !ok {
			return live
		}
		part := map[string]any{}
		for key, value := range wanted {
			switch v, there := was[key]; {
			case key == "apiVersion": // of a reference: Cluster API writes the newest that it knows
				part[key] = value
			case there:
				part[key] = like(v, value)
			}
		}
		return part
	case []any:
		was, ok := live.([]any)
		if !ok || len(was) != len(wanted) {
			return live
		}
		part := make([]any, len(was))
		for i := range was {
			part[i] = like(was[i], wanted[i])
		}
		return part
	case string:
		if was, ok := live.(string); ok && sameDuration(was, wanted) {
			return wanted
		}
	}
	return live
}

// sameDuration reports whether two texts are one duration: an API server writes 20m as 20m0s.
func sameDuration(a, b string) bool {
	one, err := time.ParseDuration(a)
	if err != nil {
		return false
	}
	other, err := time.ParseDuration(b)
	return err == nil && one == other
}

// told writes the differences between two values, field by field: "spec.version v1 → v2".
func changesOf(path string, was, is any, secret bool) []string {
	orAbsent := func(v any) any {
		if v == nil {
			return Absent{}
		}
		return v
	}
	var d Differ
	d.Compare(path, orAbsent(was), orAbsent(is), secret)
	var lines []string
	for _, one := range d.Found {
		lines = append(lines, one.Field+" "+one.Was+" → "+one.Is)
	}
	return lines
}

// changedFields names the fields of two objects that differ, with their values where they fit into a sentence. An empty
// value is none: API servers and webhooks write such where people write nothing.
func changedFields(prefix string, was, is map[string]any) []string {
	var found []string
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, b := plain(was[key]), plain(is[key])
		if a == nil && b == nil || reflect.DeepEqual(a, b) {
			continue
		}
		if textA, textB, ok := short(a, b); ok {
			found = append(found, prefix+key+" "+textA+" → "+textB)
		} else {
			found = append(found, prefix+key)
		}
	}
	return found
}

// plain is a value as JSON has it, without anything empty in it; nil when nothing is left.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		left := map[string]any{}
		for key, child := range v {
			if child = plain(child); child != nil {
				left[key] = child
			}
		}
		if len(left) > 0 {
			return left
		}
	case []any:
		if len(v) > 0 {
			return v
		}
	case string:
		if v != "" {
			return v
		}
	case nil:
	default:
		if data, err := json.Marshal(v); err == nil { // 3 and 3.0 are one number
			return string(data)
		}
		return v
	}
	return nil
}

// short writes two values, when neither is a list, an object or a text of several lines.
func short(a, b any) (string, string, bool) {
	write := func(v any) (string, bool) {
		switch v := v.(type) {
		case nil:
			return "(none)", true
		case string:
			return v, !strings.Contains(v, "\n")
		}
		return "", false
	}
	textA, okA := write(a)
	textB, okB := write(b)
	return textA, textB, okA && okB
}
