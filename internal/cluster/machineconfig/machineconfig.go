// Package machineconfig compares machine configurations of Talos field by field, and changes fields of one.
package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v3"
)

// fieldsInPlace are the fields of a machine configuration that Talos brings to a running server by itself, in every
// version that is supported (Talos, "Editing Machine Configuration"). Older versions refuse others without a reboot;
// newer ones accept any field, of which some count from the next boot on. Fields of cluster are not among them: its
// programs are restarted, or read them as the server boots.
func fieldsInPlace() []string {
	return []string{"machine.certSANs", "machine.kernel", "machine.kubelet", "machine.logging",
		"machine.network.extraHostEntries", "machine.network.nameservers", "machine.nodeAnnotations",
		"machine.nodeLabels", "machine.nodeTaints", "machine.registries", "machine.sysctls",
		"machine.sysfs", "machine.time"}
}

// documentsInPlace are the kinds of documents of which the same is true.
func documentsInPlace() []string {
	return []string{"KmsgLogConfig", "NetworkDefaultActionConfig", "NetworkRuleConfig", "RegistryMirrorConfig",
		"RegistryTLSConfig", "ResolverConfig", "StaticHostConfig", "TimeSyncConfig", "TrustedRootsConfig"}
}

// KubeletField is the field whose change restarts the kubelet.
const KubeletField = "machine.kubelet"

// document is one of the documents of a machine configuration.
type document struct {
	id      string // its kind and name; empty: the one with machine and cluster
	content map[string]any
}

// documentsOf are the documents of a machine configuration, in their order.
func documentsOf(c config.Provider) (all []document, err error) {
	text, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("write the machine configuration: %w", err)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		content := map[string]any{}
		if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil { // not the error itself, which may quote a secret
			return nil, errors.New("a document of the machine configuration cannot be read")
		}
		kind, _ := content["kind"].(string)
		name, _ := content["name"].(string)
		all = append(all, document{strings.TrimSpace(kind + " " + name), content})
	}
}

func find(all []document, id string) map[string]any {
	for _, d := range all {
		if d.id == id {
			return d.content
		}
	}
	return nil
}

// Field is a field that differs between two machine configurations.
type Field struct {
	Document string   // its kind and name; empty: the one with machine and cluster
	Path     []string // in it; empty: the whole document
	Was, Is  any      // nil: it has none
}

// String is "machine.sysctls.vm.max_map_count", or "RegistryMirrorConfig ghcr.io: endpoints".
func (f Field) String() string {
	path := strings.Join(f.Path, ".")
	switch {
	case f.Document == "":
		return path
	case path == "":
		return "document " + f.Document
	}
	return f.Document + ": " + path
}

// InPlace tells whether Talos brings the field to a running server.
func (f Field) InPlace() bool {
	if f.Document != "" {
		kind, _, _ := strings.Cut(f.Document, " ")
		return slices.Contains(documentsInPlace(), kind)
	}
	return slices.ContainsFunc(fieldsInPlace(), f.Within)
}

// Within tells whether the field is another one of machine or cluster, or a part of it.
func (f Field) Within(field string) bool {
	path := strings.Split(field, ".")
	return f.Document == "" && len(f.Path) >= len(path) && slices.Equal(f.Path[:len(path)], path)
}

// Differences are the fields that differ between two machine configurations. A list is one field.
func Differences(was, is config.Provider) (all []Field, err error) {
	before, err := documentsOf(was)
	if err != nil {
		return nil, err
	}
	after, err := documentsOf(is)
	if err != nil {
		return nil, err
	}
	for _, d := range before {
		if content := find(after, d.id); content != nil {
			all = append(all, differing(d.id, nil, d.content, content)...)
		} else {
			all = append(all, Field{Document: d.id, Was: d.content})
		}
	}
	for _, d := range after {
		if find(before, d.id) == nil {
			all = append(all, Field{Document: d.id, Is: d.content})
		}
	}
	return all, nil
}

// differing are the fields below a path in which two values differ. A map that is missing is an empty one.
func differing(document string, path []string, was, is any) (all []Field) {
	before, wasMap := was.(map[string]any)
	after, isMap := is.(map[string]any)
	if (!wasMap && was != nil) || (!isMap && is != nil) || !wasMap && !isMap {
		if reflect.DeepEqual(was, is) {
			return nil
		}
		return []Field{{Document: document, Path: path, Was: was, Is: is}}
	}
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, has := before[key]; !has {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		all = append(all, differing(document, append(slices.Clone(path), key), before[key], after[key])...)
	}
	return all
}

// WithFields is a machine configuration with the changed fields; nil: it has them. others are fields that have neither
// the value before the change nor the one after it: they are not the configuration's to change.
func WithFields(live config.Provider, fields []Field) (text []byte, others []string, err error) {
	all, err := documentsOf(live)
	if err != nil {
		return nil, nil, err
	}
	changed := false
	for _, f := range fields {
		at := slices.IndexFunc(all, func(d document) bool { return d.id == f.Document })
		var has any
		if at >= 0 {
			has = valueAt(all[at].content, f.Path)
		}
		switch {
		case same(has, f.Is):
			continue
		case !same(has, f.Was) || at < 0 && len(f.Path) > 0 && f.Document != "":
			others = append(others, f.String())
			continue
		}
		changed = true
		switch content, _ := f.Is.(map[string]any); {
		case len(f.Path) > 0 && at >= 0:
			setAt(all[at].content, f.Path, f.Is)
		case f.Is == nil:
			all = slices.Delete(all, at, at+1)
		default:
			all = append(all, document{f.Document, content})
		}
	}
	if len(others) > 0 || !changed {
		return nil, others, nil
	}
	var parts [][]byte
	for _, d := range all {
		part, err := yaml.Marshal(d.content)
		if err != nil {
			return nil, nil, fmt.Errorf("write the machine configuration: %w", err)
		}
		parts = append(parts, part)
	}
	text = bytes.Join(parts, []byte("---\n"))
	if _, err := configloader.NewFromBytes(text); err != nil { // not the error itself, which may quote a secret
		return nil, nil, errors.New("Talos could not read the machine configuration with the change")
	}
	return text, nil, nil
}

// same tells whether two values are, where none is an empty one.
func same(a, b any) bool { return reflect.DeepEqual(a, b) || empty(a) && empty(b) }

// empty tells whether a value is none: a field that is not there, or an empty map.
func empty(v any) bool {
	m, isMap := v.(map[string]any)
	return v == nil || isMap && len(m) == 0
}

// valueAt is the value at a path; nil: none.
func valueAt(content map[string]any, path []string) any {
	var v any = content
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// setAt sets the value at a path; nil removes it.
func setAt(content map[string]any, path []string, v any) {
	for _, key := range path[:len(path)-1] {
		next, is := content[key].(map[string]any)
		if !is {
			next = map[string]any{}
			content[key] = next
		}
		content = next
	}
	if v == nil {
		delete(content, path[len(path)-1])
		return
	}
	content[path[len(path)-1]] = v
}

// Patches are strategic patches that give a machine configuration the fields. Talos merges some lists and appends to
// others, so a list that is there is deleted first.
func Patches(fields []Field) (texts []string, err error) {
	deletes, sets := patchesOf{}, patchesOf{}
	for _, f := range fields {
		list, isList := f.Is.([]any)
		if (isList || empty(f.Is)) && !empty(f.Was) { // Talos refuses to delete what is not there
			deletes.set(f, map[string]any{"$patch": "delete"})
		}
		if isList && len(list) > 0 || !isList && !empty(f.Is) {
			sets.set(f, f.Is)
		}
	}
	for _, patches := range []patchesOf{deletes, sets} {
		for _, id := range slices.Sorted(maps.Keys(patches)) {
			text, err := yaml.Marshal(patches[id])
			if err != nil {
				return nil, fmt.Errorf("write a patch of the machine configuration: %w", err)
			}
			texts = append(texts, string(text))
		}
	}
	return texts, nil
}

// patchesOf are patches by the document that each is for.
type patchesOf map[string]map[string]any

func (p patchesOf) set(f Field, value any) {
	if p[f.Document] == nil {
		p[f.Document] = identityOf(f.Document)
	}
	if len(f.Path) > 0 {
		setAt(p[f.Document], f.Path, value)
		return
	}
	content, _ := value.(map[string]any)
	maps.Copy(p[f.Document], content)
}

// identityOf are the fields by which Talos finds the document that a patch is for.
func identityOf(document string) map[string]any {
	if document == "" {
		return map[string]any{}
	}
	kind, name, named := strings.Cut(document, " ")
	fields := map[string]any{"apiVersion": "v1alpha1", "kind": kind}
	if named {
		fields["name"] = name
	}
	return fields
}
