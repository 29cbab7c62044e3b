package fleet

import (
	"go.yaml.in/yaml/v3"
)

// merge lays one mapping over another, as Kustomize does with patches: mappings are merged key by key; lists whose
// entries have a name are merged entry by entry, new ones at the end; everything else is replaced; null takes a key
// away. The result shares what it has not changed. Nodes keep their lines and columns, which the mergers of Kustomize
// do not report; without them an error in a fleet's file could not say where it is.
func merge(base, over *yaml.Node) *yaml.Node {
	switch {
	case over.Kind == yaml.MappingNode && base.Kind == yaml.MappingNode:
		return mergeMappings(base, over)
	case over.Kind == yaml.MappingNode: // without the keys that are null: they take away what is not there
		return mergeMappings(&yaml.Node{Kind: yaml.MappingNode, Tag: over.Tag}, over)
	case over.Kind == yaml.SequenceNode && base.Kind == yaml.SequenceNode && named(base) && named(over):
		return mergeNamed(base, over)
	}
	return over
}

func mergeMappings(base, over *yaml.Node) *yaml.Node {
	merged := *over
	merged.Content = append([]*yaml.Node{}, base.Content...)
	for i := 0; i < len(over.Content)-1; i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		at := indexOf(&merged, key.Value)
		switch {
		case value.Tag == "!!null" && at >= 0:
			merged.Content = append(merged.Content[:at:at], merged.Content[at+2:]...)
		case value.Tag == "!!null":
		case at >= 0:
			merged.Content[at], merged.Content[at+1] = key, merge(merged.Content[at+1], value)
		default:
			merged.Content = append(merged.Content, key, merge(&yaml.Node{}, value))
		}
	}
	return &merged
}

func mergeNamed(base, over *yaml.Node) *yaml.Node {
	merged := *over
	merged.Content = append([]*yaml.Node{}, base.Content...)
	for _, entry := range over.Content {
		name := nameOf(entry)
		at := -1
		for i, has := range merged.Content {
			if nameOf(has) == name {
				at = i
			}
		}
		if at < 0 {
			merged.Content = append(merged.Content, entry)
			continue
		}
		merged.Content[at] = merge(merged.Content[at], entry)
	}
	return &merged
}

// named reports whether all entries of a list are mappings with a name.
func named(list *yaml.Node) bool {
	for _, entry := range list.Content {
		if nameOf(entry) == "" {
			return false
		}
	}
	return true
}

// nameOf is the name of a list's entry; empty: it has none.
func nameOf(entry *yaml.Node) string {
	if at := indexOf(entry, nameKey); at >= 0 && entry.Content[at+1].Kind == yaml.ScalarNode {
		return entry.Content[at+1].Value
	}
	return ""
}

// indexOf is where a key of a mapping is; negative: it is not there.
func indexOf(mapping *yaml.Node, key string) int {
	for i := 0; i < len(mapping.Content)-1 && mapping.Kind == yaml.MappingNode; i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// take takes a key out of a mapping that merge made, and returns its value; nil: it was not there.
func take(mapping *yaml.Node, key string) *yaml.Node {
	at := indexOf(mapping, key)
	if at < 0 {
		return nil
	}
	value := mapping.Content[at+1]
	mapping.Content = append(mapping.Content[:at:at], mapping.Content[at+2:]...)
	return value
}
