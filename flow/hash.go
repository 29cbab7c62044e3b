package flow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// canonical writes JSON in the one form that hashes and comparisons use: no
// white space, keys sorted, numbers as they were written.
func canonical(raw json.RawMessage) (json.RawMessage, error) {
	v, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func parse(raw json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// digest is the hash of canonical JSON.
func digest(raw json.RawMessage) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// key is what a step is made from: its spec and the outputs of its arguments and of what it follows.
type key struct {
	hash   string
	spec   json.RawMessage
	inputs map[string]string // step → digest of its output
}

// key computes what n is made from, given the digests of other steps' outputs.
func (n *node) key(digests func(*node) string) (key, error) {
	k := key{spec: n.spec, inputs: map[string]string{}}
	type input struct{ Step, Output string }
	whole := struct {
		Spec   json.RawMessage
		Inputs []input
	}{Spec: n.spec}
	for _, in := range slices.Concat(n.inputs, n.follows) {
		d := digests(in)
		k.inputs[in.name] = d
		whole.Inputs = append(whole.Inputs, input{in.name, d})
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return key{}, fmt.Errorf("hash what step %s is made from: %w", n.name, err)
	}
	k.hash = digest(raw)
	return k, nil
}

// changes says in what k differs from the key of a record: fields of the spec,
// then outputs of other steps.
func (k key) changes(rec Record) []string {
	var all []string
	for _, path := range differences(rec.Spec, k.spec) {
		all = append(all, strings.TrimSpace("spec "+path))
	}
	for name, d := range k.inputs {
		if rec.Inputs[name] != d {
			all = append(all, "output of "+name)
		}
	}
	slices.Sort(all)
	return all
}

// differences lists the paths at which two JSON texts differ, such as
// "values.hubble.enabled"; the path is empty where they differ as a whole, as a
// text that is empty or broken does from everything else.
func differences(was, is json.RawMessage) []string {
	if bytes.Equal(was, is) {
		return nil
	}
	a, errA := parse(was)
	b, errB := parse(is)
	if errA != nil || errB != nil {
		return []string{""}
	}
	paths := walk("", a, b)
	slices.Sort(paths)
	return paths
}

func walk(path string, a, b any) []string {
	objectA, okA := a.(map[string]any)
	objectB, okB := b.(map[string]any)
	if !okA || !okB {
		rawA, errA := json.Marshal(a)
		rawB, errB := json.Marshal(b)
		if errA == nil && errB == nil && bytes.Equal(rawA, rawB) {
			return nil
		}
		return []string{path}
	}
	var paths []string
	for name := range objectA {
		paths = append(paths, walk(join(path, name), objectA[name], objectB[name])...)
	}
	for name := range objectB {
		if _, both := objectA[name]; !both {
			paths = append(paths, join(path, name))
		}
	}
	return paths
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// in says where, unless that is the whole.
func in(paths []string) string {
	if len(paths) == 1 && paths[0] == "" {
		return ""
	}
	return " in " + joined(paths)
}

// joined puts a list into a sentence and keeps it short.
func joined(list []string) string {
	const most = 4
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}
