// Package changes explains what differs: which inputs of a step changed, down to the field of a file; what applying the
// manifests does to a cluster that exists; and how a cluster that manages itself deviates from the configuration.
package changes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Difference is one thing that a step would be made from otherwise than it was, in words for people.
type Difference struct {
	File  string `json:"file,omitempty"`  // that was edited; empty: the configuration itself
	Field string `json:"field,omitempty"` // "hubble.relay.enabled", "version"; empty: see Note
	Was   string `json:"was,omitempty"`
	Is    string `json:"is,omitempty"`
	Note  string `json:"note,omitempty"` // where no values can be told: why
}

// String is "bootstrap/cilium-values.yaml: hubble.enabled: true → false".
func (d Difference) String() string {
	var parts []string
	for _, p := range []string{d.File, d.Field, d.Note} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if d.Note == "" {
		parts = append(parts, d.Was+" → "+d.Is)
	}
	return strings.Join(parts, ": ")
}

// Explain says what a change of what a step is made from is, down to the field of the file that was edited. Values that
// look like secrets are not repeated.
func Explain(tools platform.Tools, sources render.Sources, c flow.Change) []Difference {
	if c.Output != "" {
		return []Difference{{Field: c.String(), Note: "another one than it was done with"}}
	}
	if is, file := edited(sources, c); file {
		return inFile(tools, sources, is, c)
	}
	if note, whole := addedOrRemoved(c); whole {
		return []Difference{{File: c.Path, Note: note}}
	}
	var d Differ
	d.Compare(c.Path, decoded(c.Was), decoded(c.Is), secretName.MatchString(c.Path))
	return d.Found
}

// addedOrRemoved reports whether a change is a file that a step was not made from before, or is not any more.
func addedOrRemoved(c flow.Change) (note string, whole bool) {
	has := func(value any) bool {
		file, _ := value.(map[string]any)
		_, found := file["sha256"]
		return found
	}
	switch was, is := decoded(c.Was), decoded(c.Is); {
	case has(is) && was == Absent{}:
		return "added", true
	case has(was) && is == Absent{}:
		return "removed", true
	}
	return "", false
}

// edited is the file whose hash a change is.
func edited(sources render.Sources, c flow.Change) (render.Source, bool) {
	sum, _ := decoded(c.Is).(string)
	if c.Path != "sha256" && !strings.HasSuffix(c.Path, ".sha256") {
		return render.Source{}, false
	}
	for _, s := range sources.All() {
		if text, err := s.Effective(sources.Vars); err == nil && text.Sum() == sum {
			s.Data = text.Data
			return s, true
		}
	}
	return render.Source{}, false
}

// inFile compares a file with the copy of what it was.
func inFile(tools platform.Tools, sources render.Sources, is render.Source, c flow.Change) []Difference {
	sum, _ := decoded(c.Was).(string)
	copied, found := KeptSources(tools)[sum]
	if !found {
		return []Difference{{File: is.Name, Note: "edited; what it was is not in the state folder"}}
	}
	was := render.Source{Name: is.Name, Data: []byte(copied)}
	before, err := Documents(sources, was)
	if err != nil {
		return []Difference{{File: is.Name, Note: "edited; what it was cannot be read any more"}}
	}
	after, err := Documents(sources, is)
	if err != nil {
		return []Difference{{File: is.Name, Note: fmt.Sprintf("edited; it cannot be read: %v", err)}}
	}
	d := Differ{file: is.Name}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.Compare(name, before[name], after[name], false)
	}
	if len(d.Found) == 0 {
		return []Difference{{File: is.Name, Note: "only its comments, its layout or the defaults of its variables changed"}}
	}
	return d.Found
}

// Documents are the YAML documents of a file with its variables filled in, by kind and name; "" for one that is no
// object. Variables that only a run knows stay as they are written.
func Documents(sources render.Sources, s render.Source) (map[string]any, error) {
	v := maps.Clone(sources.Vars)
	for _, name := range []string{render.NetworkZoneVariable, render.LoadBalancerIPVariable} {
		v[name] = "${" + name + "}"
	}
	docs, err := kube.Documents(s.Data)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	for i, doc := range docs {
		filled := doc
		if !bytes.HasPrefix(s.Data, []byte(render.MergedHeader)) {
			if filled, err = s.Fill(doc, v); err != nil {
				return nil, err
			}
		}
		var content map[string]any
		if err := yaml.Unmarshal(filled, &content); err != nil {
			return nil, err
		}
		kind, _ := content["kind"].(string)
		metadata, _ := content["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		key := strings.TrimSpace(kind + " " + name)
		if key == "" && i > 0 {
			key = fmt.Sprintf("document %d", i+1)
		}
		all[key] = content
	}
	return all, nil
}

// secretName is in the names of fields that hold secrets, and of variables of a container's environment.
var secretName = regexp.MustCompile(`(?i)passw|secret|token|credential|api_?key|access_?key|private_?key|encryption|\bpsk\b|\bauth\b|tls|htpasswd|dockerconfig`)

// secretShape looks like a key or a token: long, of letters and digits without a space; or is marked as one.
var secretShape = regexp.MustCompile(`^[A-Za-z0-9+/_=-]{20,}$`)

func looksSecret(value string) bool {
	if strings.Contains(value, "-----BEGIN") || strings.Contains(value, "://") && strings.Contains(value, "@") {
		return true
	}
	return secretShape.MatchString(value) && strings.ContainsAny(value, "0123456789") && strings.ToLower(value) != value ||
		len(value) >= 32 && secretShape.MatchString(value)
}

// Differ compares two trees of values.
type Differ struct {
	file  string
	Found []Difference
}

// Compare adds the differences of two values at a path. Values of a secret are not repeated.
func (d *Differ) Compare(path string, was, is any, secret bool) {
	if equal(was, is) {
		return
	}
	mapA, okA := was.(map[string]any)
	mapB, okB := is.(map[string]any)
	if okA && few(mapA, is) || okB && few(mapB, was) {
		okA, okB = true, true
	}
	if okA && okB {
		// An entry of an environment names what its value is.
		for _, m := range []map[string]any{mapA, mapB} {
			name, _ := m["name"].(string)
			secret = secret || secretName.MatchString(name)
		}
		names := map[string]any{}
		maps.Copy(names, mapA)
		maps.Copy(names, mapB)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			a, b := value(mapA, name), value(mapB, name)
			d.Compare(under(path, name), a, b, secret || secretName.MatchString(name))
		}
		return
	}
	listA, okA := was.([]any)
	listB, okB := is.([]any)
	if okA && okB && len(listA) == len(listB) {
		for i := range listA {
			d.Compare(fmt.Sprintf("%s[%d]", path, i), listA[i], listB[i], secret)
		}
		return
	}
	textA, okA := was.(string)
	textB, okB := is.(string)
	if okA && okB && strings.Contains(textA, "\n") && strings.Contains(textB, "\n") &&
		d.inText(path, textA, textB, secret) {
		return
	}
	d.Found = append(d.Found, Difference{File: d.file, Field: path, Was: written(was, secret), Is: written(is, secret)})
}

// few reports whether an object that is added or removed as a whole is reported field by field.
func few(m map[string]any, other any) bool {
	const most = 3
	_, none := other.(Absent)
	return none && len(m) > 0 && len(m) <= most
}

// inText compares YAML in YAML, as strategic patches are.
func (d *Differ) inText(path, was, is string, secret bool) bool {
	var a, b map[string]any
	if yaml.Unmarshal([]byte(was), &a) != nil || yaml.Unmarshal([]byte(is), &b) != nil || a == nil || b == nil {
		return false
	}
	before := len(d.Found)
	d.Compare(path, a, b, secret)
	return len(d.Found) > before
}

// Absent is a field that is not there, which null is.
type Absent struct{}

func value(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return Absent{}
}

func under(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.Contains(path, " ") && !strings.Contains(path, ": "): // a document's kind and name
		return path + ": " + name
	}
	return path + "." + name
}

func equal(a, b any) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	_, noA := a.(Absent)
	_, noB := b.(Absent)
	return errA == nil && errB == nil && noA == noB && bytes.Equal(rawA, rawB)
}

// written is a value as it would be written in one short line.
func written(v any, secret bool) string {
	const longest = 60
	switch v := v.(type) {
	case Absent, nil:
		return "(none)"
	case map[string]any:
		return fmt.Sprintf("{%d fields}", len(v))
	case []any:
		if raw, err := json.Marshal(v); err == nil && len(raw) <= longest && !secret && !slices.ContainsFunc(v, anySecret) {
			return string(raw)
		}
		return fmt.Sprintf("[%d items]", len(v))
	case string:
		switch {
		case secret || looksSecret(v):
			return platform.Hidden
		case strings.Contains(v, "\n"):
			return fmt.Sprintf("(%d lines)", strings.Count(strings.TrimRight(v, "\n"), "\n")+1)
		case len(v) > longest:
			return fmt.Sprintf("%q…", string([]rune(v)[:min(longest, len([]rune(v)))]))
		case v == "":
			return `""`
		}
		return v
	case bool:
		return fmt.Sprint(v)
	default:
		if secret {
			return platform.Hidden
		}
		return fmt.Sprint(v)
	}
}

// anySecret reports whether something in a value looks like a secret.
func anySecret(v any) bool {
	switch v := v.(type) {
	case string:
		return looksSecret(v)
	case map[string]any:
		for name, child := range v {
			if secretName.MatchString(name) || anySecret(child) {
				return true
			}
			if text, isText := child.(string); isText && name == "name" && secretName.MatchString(text) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, anySecret)
	}
	return false
}

// decoded is a value of a spec; absent for none.
func decoded(raw json.RawMessage) any {
	if raw == nil {
		return Absent{}
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return Absent{}
	}
	return v
}
