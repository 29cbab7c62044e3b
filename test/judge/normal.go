package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// normalizer removes from one Observation what no two Observations have in common.
type normalizer struct {
	allowances []allowance
	names      *strings.Replacer // random names of this Observation
}

// randomKinds are the kinds whose names carry a random suffix; what is called after them has it too.
func randomKinds() []string {
	return []string{"Machine", "HCloudMachine", "TalosConfig", "Node"}
}

func newNormalizer(seen Observation) normalizer {
	random := map[string]bool{}
	for _, resource := range []string{"servers", "load_balancers"} {
		for _, o := range seen.Cloud[resource] {
			random[text(o, "name")] = true
		}
	}
	for _, c := range seen.Clusters {
		for _, o := range c.Objects {
			if slices.Contains(randomKinds(), text(o, "kind")) {
				random[text(o, "metadata", "name")] = true
			}
		}
	}
	// Names that contain others come first.
	names := slices.SortedFunc(maps.Keys(random), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, name := range names {
		if name != "" {
			pairs = append(pairs, name, "<random>")
		}
	}
	return normalizer{allowances: allowances(), names: strings.NewReplacer(pairs...)}
}

// state is a Observation in normal form: kind and name → every such object as JSON, sorted.
// Objects with random names are grouped.
type state map[string][]string

func normalize(seen Observation) state {
	n := newNormalizer(seen)
	s := state{}
	add := func(key string, value any) {
		data, err := json.Marshal(value) // sorts keys
		if err != nil {
			data = []byte(err.Error()) // no JSON came in, so none of it is equal to anything
		}
		key = n.text(key)
		s[key] = append(s[key], string(data))
	}
	for resource, all := range seen.Cloud {
		for _, o := range all {
			add("cloud "+resource+" "+cmp.Or(text(o, "name"), text(o, "description")), n.resource(o))
		}
	}
	for side, c := range seen.Clusters {
		for _, o := range c.Objects {
			if ended(o) {
				continue
			}
			name := strings.TrimPrefix(text(o, "metadata", "namespace")+"/"+text(o, "metadata", "name"), "/")
			add(fmt.Sprintf("%s %s %s", side, text(o, "kind"), name), n.object(o))
		}
	}
	for name, f := range seen.Files {
		if !n.fileAllowed(name) {
			add("file "+name, map[string]any{"mode": fmt.Sprintf("%04o", f.Mode), "content": n.content(name, f.Data)})
		}
	}
	for step, is := range seen.Journal {
		add("step "+step, is)
	}
	for _, list := range s {
		slices.Sort(list)
	}
	return s
}

// ended says whether an object is the record of a superseded release.
func ended(o Object) bool {
	return text(o, "type") == "helm.sh/release.v1" && slices.Contains([]string{"superseded", "uninstalled"},
		text(o, "metadata", "labels", "status"))
}

// object is an object of a cluster in normal form: all that was written by a client, and which conditions hold.
func (n normalizer) object(o Object) any {
	kept := maps.Clone(o)
	delete(kept, "status")
	switch text(o, "kind") {
	case "Secret":
		kept["data"] = slices.Sorted(maps.Keys(dictionary(o, "data")))
	case "Node":
		spec := maps.Clone(dictionary(o, "spec"))
		if taints := n.taints(spec["taints"]); len(taints) > 0 {
			spec["taints"] = taints
		} else {
			delete(spec, "taints")
		}
		kept["spec"] = spec
	}
	stateless := slices.ContainsFunc(n.allowances,
		func(a allowance) bool { return slices.Contains(a.states, text(o, "kind")) })
	if conditions := conditionsOf(o); len(conditions) > 0 && !stateless {
		kept["conditions"] = conditions
	}
	return n.value(kept, "", func(a allowance) []string { return a.fields })
}

// taints are those of a Node that are compared.
func (n normalizer) taints(all any) []any {
	list, _ := all.([]any)
	return slices.DeleteFunc(slices.Clone(list), func(taint any) bool {
		m, _ := taint.(map[string]any)
		return slices.ContainsFunc(n.allowances,
			func(a allowance) bool { return a.taints != nil && a.taints.MatchString(text(m, "key")) })
	})
}

// conditionsOf are an object's conditions without when and why.
func conditionsOf(o Object) map[string]any {
	list, _ := dictionary(o, "status")["conditions"].([]any)
	found := map[string]any{}
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			found[text(m, "type")] = text(m, "status")
		}
	}
	return found
}

// resource is a resource of the cloud in normal form. Another that it tells all
// about, its server type say, is only named.
func (n normalizer) resource(o Object) any {
	kept := maps.Clone(o)
	for key, value := range kept {
		if m, ok := value.(map[string]any); ok && m["id"] != nil {
			kept[key] = cmp.Or(text(m, "name"), text(m, "description"), "one")
		}
	}
	return n.value(kept, "", func(a allowance) []string { return a.cloud })
}

// value normalizes the value at a path.
func (n normalizer) value(v any, at string, allowed func(allowance) []string) any {
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range v {
			below := strings.TrimPrefix(at+"."+key, ".")
			if !n.allowed(below, allowed) {
				kept[n.text(key)] = n.value(inner, below, allowed)
			}
		}
		return kept
	case []any:
		kept := make([]any, 0, len(v))
		for _, inner := range v {
			kept = append(kept, n.value(inner, at+".*", allowed))
		}
		if strings.Contains(at, "ownerReferences") || strings.Contains(at, "targets") || strings.Contains(at, "applied_to") {
			sortByJSON(kept) // in the order in which they came
		}
		return kept
	case string:
		return n.text(v)
	case json.Number:
		return n.text(v.String())
	}
	return v
}

func sortByJSON(list []any) {
	slices.SortFunc(list, func(a, b any) int {
		x, _ := json.Marshal(a) // it was JSON
		y, _ := json.Marshal(b)
		return cmp.Compare(string(x), string(y))
	})
}

func (n normalizer) allowed(at string, fields func(allowance) []string) bool {
	for _, a := range n.allowances {
		for _, f := range fields(a) {
			if f == at || strings.Contains(f, "*") && matches(f, at) {
				return true
			}
		}
	}
	return false
}

// matches compares paths of keys; "*" matches any.
func matches(pattern, at string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(at, ".", "/"))
	return err == nil && ok
}

func (n normalizer) text(s string) string {
	s = n.names.Replace(s)
	for _, a := range n.allowances {
		if a.text != nil {
			s = a.text.ReplaceAllString(s, a.by)
		}
	}
	return s
}

func (n normalizer) fileAllowed(name string) bool {
	return slices.ContainsFunc(n.allowances, func(a allowance) bool {
		return slices.ContainsFunc(a.files, func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return err == nil && ok
		})
	})
}

func dictionary(o Object, key string) map[string]any {
	m, _ := o[key].(map[string]any)
	return m
}

// differences says where two normal states disagree, and never the value of a file or Secret, which are not in them.
func differences(want, is state) []string {
	keys := maps.Clone(want)
	maps.Copy(keys, is)
	var found []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, b := want[key], is[key]
		switch {
		case slices.Equal(a, b):
		case len(a) != len(b):
			found = append(found, fmt.Sprintf("%s: %d there, not %d", key, len(b), len(a)))
		default:
			for i := range a {
				if a[i] != b[i] {
					found = append(found, fmt.Sprintf("%s: %s", key, strings.Join(differ(a[i], b[i]), "; ")))
				}
			}
		}
	}
	return found
}

// differ names the fields in which two objects differ, with their values.
func differ(want, is string) []string {
	var a, b any
	if json.Unmarshal([]byte(want), &a) != nil || json.Unmarshal([]byte(is), &b) != nil {
		return []string{is + " instead of " + want}
	}
	var found []string
	var descend func(at string, a, b any)
	descend = func(at string, a, b any) {
		x, xok := a.(map[string]any)
		y, yok := b.(map[string]any)
		if !xok || !yok {
			p, _ := json.Marshal(a) // it was JSON
			q, _ := json.Marshal(b)
			if string(p) != string(q) {
				found = append(found, fmt.Sprintf("%s is %s instead of %s", strings.TrimPrefix(at, "."), shortened(q),
					shortened(p)))
			}
			return
		}
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			descend(at+"."+k, x[k], y[k])
		}
	}
	descend("", a, b)
	return found
}

func shortened(data []byte) string {
	const most = 160
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}
