package settings

import (
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
)

// addonsField is the key of the add-ons: a list, or as ADDONS the names of shipped ones.
const addonsField = "addons"

// addons reads a list of add-ons, each a name or a mapping, and the place of each of their values.
func (f *yamlFile) addons(list *yaml.Node) {
	f.config.Places[addonsField] = f.place(list)
	f.config.Addons = nil
	for i, item := range list.Content {
		at := fmt.Sprintf("%s[%d]", addonsField, i)
		if item.Kind == yaml.ScalarNode {
			f.config.Places[at] = f.place(item)
			f.config.Addons = append(f.config.Addons, config.Addon{Name: item.Value})
			continue
		}
		before := len(f.problems)
		f.keys(item, at, reflect.TypeFor[config.Addon]())
		if len(f.problems) > before {
			continue
		}
		var addon config.Addon
		if err := item.Decode(&addon); err != nil {
			f.problem(item, "%s: %w", at, err)
			continue
		}
		f.config.Addons = append(f.config.Addons, addon)
	}
}

// addonsSchema describes the value of addons for editors.
func addonsSchema(v config.Variable) any {
	timeout := words("Longest time for the release; default: RELEASE_TIMEOUT.")
	timeout["pattern"] = Variable("RELEASE_TIMEOUT").Pattern()
	addon := mapping([]string{"name"}, object{
		"name": object{"type": "string", "description": "Name of the Helm release: that of a shipped add-on, or one of your " +
			"own."},
		"chart":      words("Name of the chart in its repository."),
		"repository": words("Chart repository, https:// or oci://."),
		"version":    words("Exact version of the chart."),
		"namespace":  words("Namespace of the release; it is created where it is missing."),
		"podSecurity": object{"enum": []any{"privileged", "baseline", "restricted", nil},
			"description": "Level of Pod Security that the namespace enforces."},
		"values": words("Values file in the folder bootstrap/addons; default: NAME-values.yaml, where there is one."),
		"wait": object{"type": []string{"boolean", "null"}, "default": true,
			"description": "Whether the run waits until the workloads are ready."},
		"timeout": timeout,
		"after":   listOf(object{"type": "string"}, "Other add-ons that are installed first."),
	})
	return object{"description": v.Doc + " (" + v.Name + ")", "anyOf": []any{
		object{"type": []string{"string", "null"}},
		object{"type": "array", "items": object{"anyOf": []any{object{"type": "string"}, addon}}},
	}}
}
