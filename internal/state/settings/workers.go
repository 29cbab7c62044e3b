package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// workersField is the key of the worker pools: a list, or as WORKERS the number of servers of one pool.
const workersField = "workers"

// workers reads a list of worker pools, and the place of each of their values.
func (f *yamlFile) workers(list *yaml.Node) {
	f.config.Places[workersField] = f.place(list)
	f.config.Workers = nil
	for i, item := range list.Content {
		at := fmt.Sprintf("%s[%d]", workersField, i)
		before := len(f.problems)
		f.keys(item, at, reflect.TypeFor[config.WorkerPool]())
		if len(f.problems) > before {
			continue
		}
		var pool config.WorkerPool
		if err := item.Decode(&pool); err != nil {
			f.problem(item, "%s: %w", at, err)
			continue
		}
		f.config.Workers = append(f.config.Workers, pool)
	}
}

// keys holds the keys of a mapping against the fields of a type, and remembers where each value is.
func (f *yamlFile) keys(n *yaml.Node, at string, of reflect.Type) {
	f.config.Places[at] = f.place(n)
	switch of.Kind() {
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			f.problem(n, "%s is a list", at)
			return
		}
		for i, item := range n.Content {
			f.keys(item, fmt.Sprintf("%s[%d]", at, i), of.Elem())
		}
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			f.problem(n, "%s is a mapping of names to values", at)
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			f.config.Places[at+"."+n.Content[i].Value] = f.place(n.Content[i])
		}
	case reflect.Struct:
		if n.Kind != yaml.MappingNode {
			f.problem(n, "%s is a mapping with the keys %s", at, strings.Join(keysOf(of), ", "))
			return
		}
		f.fields(n, at, of)
	default:
		if n.Kind != yaml.ScalarNode {
			f.problem(n, "%s takes one plain value", at)
		}
	}
}

func (f *yamlFile) fields(n *yaml.Node, at string, of reflect.Type) {
	known, seen := keysOf(of), map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := at + "." + key.Value
		switch index := slices.Index(known, key.Value); {
		case index < 0:
			f.problem(key, "%s: there is no such key%s", at, usage.DidYouMean("", key.Value, known))
		case seen[key.Value] > 0:
			f.problem(key, "%s is given a second time (first in line %d)", at, seen[key.Value])
		case value.Tag == "!!null": // "key:" leaves the default
		default:
			if of == reflect.TypeFor[config.WorkerPool]() && config.ListsInPool(key.Value) {
				value = f.words(at, value)
				n.Content[i+1] = value
			}
			f.keys(value, at, of.Field(index).Type)
		}
		seen[key.Value] = key.Line
	}
}

// keysOf are the keys of a type in YAML, in the order of its fields.
func keysOf(of reflect.Type) (keys []string) {
	for i := range of.NumField() {
		key, _, _ := strings.Cut(of.Field(i).Tag.Get("yaml"), ",")
		keys = append(keys, key)
	}
	return keys
}

// refuseTwice refuses WORKERS where the file has a list of pools: a number in its place would delete the others. It
// refuses ADDONS where the file has more than names.
func (c *Configuration) refuseTwice(v config.Variable, place string) error {
	if v.Field == addonsField && !c.Addons.Plain() {
		return fmt.Errorf("%s: ADDONS is given, and %s has a list with more than names: add to that list, or leave it out",
			place, c.Places[addonsField])
	}
	if v.Field != workersField || c.Workers.Plain() || len(c.Workers) == 0 {
		return nil
	}
	return fmt.Errorf("%s: WORKERS is given, and %s has a list of worker pools: change the pool's replicas there, or leave "+
		"the list out", place, c.Places[workersField])
}

// poolsSchema describes the value of workers for editors.
func poolsSchema(v config.Variable) any {
	number := func(doc string) object {
		return object{"type": []string{"integer", "null"}, "minimum": 0, "description": doc}
	}
	preferred := func(doc, like string) object {
		return object{"type": []string{"string", "array", "null"}, "items": object{"type": "string"}, "description": doc,
			"pattern": Variable(like).Pattern()}
	}
	taint := mapping([]string{"key", "effect"}, object{"key": object{"type": "string"}, "value": words("Value of the taint."),
		"effect": object{"enum": config.TaintEffects()}})
	pool := mapping([]string{"name"}, object{
		"name":       object{"type": "string", "description": "DNS label, part of the servers' names."},
		"serverType": preferred("Hetzner server types, the preferred first; default: WORKER_SERVER_TYPE.", "SERVER_TYPE"),
		"location":   preferred("Hetzner locations, the preferred first; default: LOCATION.", "LOCATION"),
		"replicas":   number("Number of servers; not together with min and max."),
		"min":        number("Smallest number of servers that the cluster autoscaler may choose."),
		"max":        number("Largest number of servers that the cluster autoscaler may choose."),
		"labels": object{"type": []string{"object", "null"}, "description": "Labels of the nodes.",
			"additionalProperties": object{"type": "string"}},
		"taints": listOf(taint, "Taints that the nodes register with."),
		"image":  words("Label caph-image-name of the snapshot; default: the image of the control plane's Talos version."),
		"schematic": words("Name of a file in bootstrap/schematics, without .yaml, that the servers' image is made from; " +
			"default: bootstrap/schematic.yaml; not together with image."),
		"patches": listOf(object{"type": "string"}, "Strategic merge patches of the Talos configuration."),
	})
	return object{"description": v.Doc + " (" + v.Name + ")", "anyOf": []any{
		object{"type": []string{"integer", "null"}, "minimum": 0},
		object{"type": "array", "items": pool},
	}}
}
