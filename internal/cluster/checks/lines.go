package checks

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// lineIn is the line of a field of an object in the file that it was made from, or of the nearest field above it that
// the file has: of the object itself where it has none; 0 where the object is not found.
func lineIn(s render.Source, v render.Variables, o *unstructured.Unstructured, path string) int {
	node := documentOf(s, v, o)
	if node == nil {
		return 0
	}
	line, _ := follow(node, fieldPath(path))
	return line
}

// follow goes down a path as far as there is one: it has the line of the last field, and the node at the end of the
// path; nil: the path does not go so far.
func follow[Step any](node *yaml.Node, path []Step) (line int, end *yaml.Node) {
	line = node.Line
	for _, step := range path {
		key, child := childOf(node, step)
		if child == nil {
			return line, nil
		}
		node, line = child, key.Line
	}
	return line, node
}

// nodeIn is the YAML of a field of an object in its file; nil where the file has none, as of what was added to the
// object.
func nodeIn(s render.Source, v render.Variables, o *unstructured.Unstructured, path string) *yaml.Node {
	node := documentOf(s, v, o)
	if node != nil {
		_, node = follow(node, fieldPath(path))
	}
	return node
}

// documentOf is the document of an object. The file is read as it is written, with its variables: lines of what they
// stand for may differ.
func documentOf(s render.Source, v render.Variables, o *unstructured.Unstructured) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(s.Data))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) || err != nil {
			return nil
		}
		if len(document.Content) == 0 {
			continue
		}
		node := document.Content[0]
		_, kind := childOf(node, "kind")
		_, metadata := childOf(node, "metadata")
		_, name := childOf(metadata, "name")
		if kind == nil || name == nil || kind.Value != o.GetKind() {
			continue
		}
		if ofPool(o) { // the file is of all pools, and has one document of a kind
			return node
		}
		filled, err := s.Fill([]byte(name.Value), v)
		// A template's name ends with the hash of its content.
		if err == nil && (string(filled) == o.GetName() || strings.HasPrefix(o.GetName(), string(filled)+"-") &&
			o.GetKind() == capi.MachineTemplateKind.Kind) {
			return node
		}
	}
}

// childOf is a field of a mapping, or an element of a sequence, and the node whose line is its own; nil where there is
// none.
func childOf(node *yaml.Node, step any) (key, child *yaml.Node) {
	switch step := step.(type) {
	case string:
		if node == nil || node.Kind != yaml.MappingNode {
			return nil, nil
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i], node.Content[i+1]
			}
		}
	case int:
		if node != nil && node.Kind == yaml.SequenceNode && step < len(node.Content) {
			return node.Content[step], node.Content[step]
		}
	}
	return nil, nil
}

// lineOfKey is the line of a key in a YAML text, beginning with 1; 0 where the text has no such key.
func lineOfKey[Step any](text string, path []Step) int {
	var document yaml.Node
	if len(path) == 0 || yaml.Unmarshal([]byte(text), &document) != nil || len(document.Content) == 0 {
		return 0
	}
	line, end := follow(document.Content[0], path)
	if end == nil {
		return 0
	}
	return line
}

// firstPath goes down a tree along its first keys.
func firstPath(tree map[string]any) (path []string) {
	for len(tree) > 0 {
		key := slices.Sorted(maps.Keys(tree))[0]
		path = append(path, key)
		tree, _ = tree[key].(map[string]any)
	}
	return path
}

// nested is a tree of one path, with nothing at its end.
func nested(path []string) (tree any) {
	for _, key := range slices.Backward(path) {
		tree = map[string]any{key: tree}
	}
	return tree
}
