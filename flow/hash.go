package flow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
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

// key is what a step is made from: its spec, and the outputs of its arguments and of the steps that it reruns after.
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
	for _, in := range slices.Concat(n.inputs, n.rerunAfter) {
		d := digests(in)
		k.inputs[in.name] = d
		whole.Inputs = append(whole.Inputs, input{in.name, d})
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return key{}, fmt.Errorf("hash the spec of step %s: %w", n.name, err)
	}
	k.hash = digest(raw)
	return k, nil
}

// Change is one difference between what a step was made from and what it would
// be made from today: a field of its spec, or the output of another step.
type Change struct {
	Path   string          `json:"path,omitempty"`   // in the spec: "values.hubble.enabled"; empty: the spec as a whole
	Output string          `json:"output,omitempty"` // the step whose output it is, in place of Path
	Was    json.RawMessage `json:"was,omitempty"`    // in the spec; nil: it was not there
	Is     json.RawMessage `json:"is,omitempty"`     // nil: it is not there any more
}

// String names what changed, without the values.
func (c Change) String() string {
	if c.Output != "" {
		return "output of " + c.Output
	}
	return strings.TrimSpace("spec " + c.Path)
}

// changes says in what k differs from the key of a record, which it does: fields
// of the spec, and outputs of other steps.
func (k key) changes(rec Record) []Change {
	all := differences(rec.Spec, k.spec)
	for name, d := range k.inputs {
		if rec.Inputs[name] != d {
			all = append(all, Change{Output: name})
		}
	}
	for name := range rec.Inputs {
		if _, still := k.inputs[name]; !still {
			all = append(all, Change{Output: name})
		}
	}
	if len(all) == 0 {
		all = []Change{{Was: rec.Spec, Is: k.spec}} // the order of its arguments, say
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// changesSince says in what k differs from what the step was made from when it
// was last done; nothing where it never was.
func (k key) changesSince(rec Record) []Change {
	switch made := rec.made(); {
	case rec.State == StateDone && rec.Hash == k.hash, made == nil:
		return nil
	case rec.State == StateDone:
		return k.changes(rec)
	case bytes.Equal(made.Spec, k.spec) && maps.Equal(made.Inputs, k.inputs):
		return nil
	default:
		return k.changes(Record{Spec: made.Spec, Inputs: made.Inputs})
	}
}

// named are the names of changes.
func named(changes []Change) []string {
	var names []string
	for _, c := range changes {
		names = append(names, c.String())
	}
	return names
}

// differences lists the places at which two JSON texts differ; the path is empty
// where they differ as a whole, as a text that is empty or broken does from
// everything else.
func differences(was, is json.RawMessage) []Change {
	if bytes.Equal(was, is) {
		return nil
	}
	a, errA := parse(was)
	b, errB := parse(is)
	if errA != nil || errB != nil {
		return []Change{{Was: was, Is: is}}
	}
	changes := walk("", present{a, true}, present{b, true})
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// present is a value that may not be there, which null is.
type present struct {
	value any
	there bool
}

func (p present) raw() json.RawMessage {
	raw, err := json.Marshal(p.value)
	if err != nil || !p.there {
		return nil
	}
	return raw
}

func walk(path string, a, b present) []Change {
	objectA, okA := a.value.(map[string]any)
	objectB, okB := b.value.(map[string]any)
	if !okA || !okB {
		rawA, rawB := a.raw(), b.raw()
		if a.there == b.there && bytes.Equal(rawA, rawB) {
			return nil
		}
		return []Change{{Path: path, Was: rawA, Is: rawB}}
	}
	var changes []Change
	for name, value := range objectA {
		other, both := objectB[name]
		changes = append(changes, walk(join(path, name), present{value, true}, present{other, both})...)
	}
	for name, value := range objectB {
		if _, both := objectA[name]; !both {
			changes = append(changes, walk(join(path, name), present{}, present{value, true})...)
		}
	}
	return changes
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// in says where, unless that is the whole.
func in(changes []Change) string {
	var paths []string
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
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
