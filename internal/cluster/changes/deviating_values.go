package changes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// use is a place in the manifests that is a variable and nothing else.
type use struct {
	variable string
	// that the place is in; nil: it is in a Talos patch that is added to the control plane
	object *unstructured.Unstructured
	path   []any // string: a field, int: an item, inText: the YAML in a text
}

type inText struct{}

// uses finds the variables of the manifests. They are filled with values that stand nowhere else, so that each is found
// again wherever the manifests put it.
func uses(cfg config.Config, sources render.Sources, v render.Variables) ([]use, error) {
	marked, marks := render.Variables{}, map[string]string{}
	for i, variable := range config.Variables() {
		mark := fmt.Sprintf("slipway-variable-%d", i)
		if _, number := variable.Pointer(&cfg).(*int); number {
			mark = strconv.Itoa(1_000_000_000 + i)
		}
		marked[variable.Name], marks[mark] = mark, variable.Name
	}
	for name, value := range v { // those that only a run knows, and what names objects
		if _, ok := marked[name]; !ok || name == "CLUSTER_NAME" {
			marked[name] = value
		}
	}
	marked[render.ImageNameVariable] = v[render.ImageNameVariable]
	var found []use
	for _, s := range sources.Objects() {
		docs, err := kube.Documents(s.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		for _, doc := range docs {
			filled, err := s.Fill(doc, marked)
			if err != nil {
				return nil, err
			}
			o, err := kube.Parse(filled)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			found = append(found, usesIn(o, o.Object, nil, marks)...)
		}
	}
	patch, err := sources.OidcPatch.Fill(sources.OidcPatch.Data, marked)
	if err != nil {
		return nil, err
	}
	return append(found, usesIn(nil, string(patch), nil, marks)...), nil
}

// usesIn finds the marks below a value.
func usesIn(o *unstructured.Unstructured, value any, path []any, marks map[string]string) (found []use) {
	below := func(step, value any) {
		found = append(found, usesIn(o, value, append(slices.Clone(path), step), marks)...)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			below(key, value[key])
		}
	case []any:
		for i, child := range value {
			below(i, child)
		}
	case string:
		if name, ok := marks[value]; ok {
			return []use{{name, o, path}}
		}
		if inner, ok := structured(value); ok {
			below(inText{}, inner)
		}
	default:
		if name, ok := marks[scalar(value)]; ok {
			return []use{{name, o, path}}
		}
	}
	return found
}

// scalar is a plain value as it would be written.
func scalar(v any) string {
	if n, ok := v.(float64); ok { // in YAML without a schema every number is one
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// structured reads YAML in a text of several lines.
func structured(text string) (map[string]any, bool) {
	var inner map[string]any
	return inner, strings.Contains(text, "\n") && yaml.Unmarshal([]byte(text), &inner) == nil && inner != nil
}

// follow is the value at a path, as it would be written. Where an item is not what the path says, another of the list
// may be: patches have no order that means something.
func follow(value any, path []any) (string, bool) {
	if len(path) == 0 {
		switch value.(type) {
		case nil, map[string]any, []any:
			return "", false
		}
		return scalar(value), true
	}
	switch step := path[0].(type) {
	case string:
		m, ok := value.(map[string]any)
		if !ok {
			return "", false
		}
		return follow(m[step], path[1:])
	case int:
		list, _ := value.([]any)
		if step < len(list) {
			if found, ok := follow(list[step], path[1:]); ok {
				return found, true
			}
		}
		for _, item := range list {
			if found, ok := follow(item, path[1:]); ok {
				return found, true
			}
		}
	case inText:
		text, _ := value.(string)
		if inner, ok := structured(text); ok {
			return follow(inner, path[1:])
		}
	}
	return "", false
}

// liveValues are the values that the variables have in the live objects, as far as the manifests say where each is.
func liveValues(cfg config.Config, sources render.Sources, live LiveObjects,
	v render.Variables) (map[string]string, error) {
	uses, err := uses(cfg, sources, v)
	if err != nil {
		return nil, err
	}
	controlPlane := live.Find(capi.TalosControlPlaneKind.GroupKind(), cfg.ControlPlaneName())
	if controlPlane == nil {
		return nil, fmt.Errorf("cluster %s has no TalosControlPlane %s", cfg.ClusterName, cfg.ControlPlaneName())
	}
	// The patch for OpenID Connect is in the control plane, or is not.
	values := map[string]string{"OIDC_ISSUER_URL": "", "OIDC_CLIENT_ID": ""}
	patches, _, _ := unstructured.NestedSlice(controlPlane.Object, "spec", "controlPlaneConfig", "controlplane",
		"strategicPatches")
	for _, u := range uses {
		if values[u.variable] != "" {
			continue
		}
		var in any
		path := u.path
		switch {
		case u.object == nil:
			in, path = patches, append([]any{0}, path...)
		case u.object.GroupVersionKind().GroupKind() == capi.MachineTemplateKind.GroupKind() &&
			u.object.GetName() == cfg.ControlPlaneName():
			if o := live.Find(capi.MachineTemplateKind.GroupKind(), orders.Template(controlPlane)); o != nil {
				in = o.Object
			}
		default:
			if o := live.Find(u.object.GroupVersionKind().GroupKind(), u.object.GetName()); o != nil {
				in = o.Object
			}
		}
		if value, ok := follow(in, path); ok {
			values[u.variable] = value
		}
	}
	return values, nil
}
