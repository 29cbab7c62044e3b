package settings

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// mostNodes bounds a YAML document whose aliases stand for more and more.
const mostNodes = 100_000

// mergeKey is the key by which a mapping takes over the keys of others (yaml.org/type/merge.html).
const mergeKey = "<<"

// Expand returns a YAML tree without aliases and merge keys: what they stand for is in their place. A mapping's own
// keys count before those that it takes over. Nodes keep the lines and columns at which they are written.
func Expand(root *yaml.Node) (*yaml.Node, error) {
	e := &expansion{within: map[*yaml.Node]bool{}}
	return e.expand(root)
}

type expansion struct {
	nodes  int
	within map[*yaml.Node]bool // anchors whose content is being expanded
}

func (e *expansion) expand(n *yaml.Node) (*yaml.Node, error) {
	if e.nodes++; e.nodes > mostNodes {
		return nil, errors.New("its aliases stand for too much content")
	}
	if n.Kind == yaml.AliasNode {
		if e.within[n.Alias] {
			return nil, fmt.Errorf("line %d: the alias *%s is inside of what it stands for", n.Line, n.Value)
		}
		e.within[n.Alias] = true
		defer delete(e.within, n.Alias)
		return e.expand(n.Alias)
	}
	expanded := *n
	expanded.Anchor, expanded.Content = "", nil
	for _, child := range n.Content {
		one, err := e.expand(child)
		if err != nil {
			return nil, err
		}
		expanded.Content = append(expanded.Content, one)
	}
	if n.Kind != yaml.MappingNode {
		return &expanded, nil
	}
	return &expanded, mergeKeys(&expanded)
}

// mergeKeys takes the keys over that a mapping's merge key names.
func mergeKeys(mapping *yaml.Node) error {
	var own, others []*yaml.Node
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if key.Value != mergeKey || key.Tag != "!!merge" {
			own = append(own, key, value)
			continue
		}
		from := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			from = value.Content
		}
		for _, other := range from {
			if other.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: << takes over the keys of a mapping, or of a list of mappings", key.Line)
			}
			others = append(others, other.Content...)
		}
	}
	has := map[string]bool{}
	for i := 0; i < len(own); i += 2 {
		has[own[i].Value] = true
	}
	mapping.Content = own
	for i := 0; i+1 < len(others); i += 2 {
		if name := others[i].Value; !has[name] {
			has[name] = true
			mapping.Content = append(mapping.Content, others[i], others[i+1])
		}
	}
	return nil
}
