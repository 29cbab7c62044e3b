package dependencies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/diagram"
	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// Graph is the dependencies of a tree as JSON.
type Graph struct {
	Kind    string      `json:"kind"` // "dependency-graph"
	Source  string      `json:"source"`
	Objects []GraphNode `json:"objects"`
}

// GraphNode is an object, or one that another depends on.
type GraphNode struct {
	Name      string   `json:"name"`            // kind namespace/name
	Place     string   `json:"place,omitempty"` // file:line
	Missing   bool     `json:"missing"`         // others depend on it, and it does not exist
	DependsOn []string `json:"dependsOn"`
}

// GraphOf has the objects of a tree, each after those that it depends on, as far as there is no cycle.
func GraphOf(t *Tree) (Graph, error) {
	g := Graph{Kind: "dependency-graph", Source: t.Source}
	all := t.first()
	if len(all) == 0 {
		return g, usage.Errorf("there is no HelmRelease and no Kustomization of Flux in %s", t.Source)
	}
	for _, key := range inOrder(all) {
		n := GraphNode{Name: key.String(), Missing: all[key] == nil, DependsOn: []string{}}
		if o := all[key]; o != nil {
			n.Place = o.Place
			for _, on := range slices.Compact(slices.SortedFunc(slices.Values(o.DependsOn), compareKeys)) {
				n.DependsOn = append(n.DependsOn, on.String())
			}
		}
		g.Objects = append(g.Objects, n)
	}
	return g, nil
}

// inOrder are the objects and what they depend on, each after its dependencies; within a cycle, by name.
func inOrder(all map[Key]*Object) (order []Key) {
	left := map[Key]map[Key]bool{} // what has to come before
	for key, o := range all {
		if left[key] == nil {
			left[key] = map[Key]bool{}
		}
		for _, on := range o.DependsOn {
			left[key][on] = true
			if left[on] == nil {
				left[on] = map[Key]bool{}
			}
		}
	}
	for len(left) > 0 {
		next := slices.MinFunc(slices.Collect(maps.Keys(left)), func(a, b Key) int {
			return cmp.Or(cmp.Compare(min(len(left[a]), 1), min(len(left[b]), 1)), compareKeys(a, b))
		})
		order = append(order, next)
		delete(left, next)
		for _, before := range left {
			delete(before, next)
		}
	}
	return order
}

// Draw draws the graph: mermaid, dot or svg.
func Draw(t *Tree, form string) (string, error) {
	g, err := GraphOf(t)
	if err != nil {
		return "", err
	}
	d := diagram.Graph{Name: "dependencies", Title: "What Flux's objects depend on"}
	for _, n := range g.Objects {
		node := diagram.Node{Name: n.Name, Doc: cmp.Or(n.Place, n.Name)}
		if n.Missing {
			node.Name, node.Doc = n.Name+" (missing)", "others depend on it, and it does not exist"
		}
		d.Nodes = append(d.Nodes, node)
	}
	named := map[string]string{}
	for i, n := range g.Objects {
		named[n.Name] = d.Nodes[i].Name
	}
	for _, n := range g.Objects {
		for _, on := range n.DependsOn {
			d.Edges = append(d.Edges, diagram.Edge{From: named[on], To: named[n.Name], Kind: diagram.After})
		}
	}
	switch form {
	case "dot":
		return d.DOT(), nil
	case "svg":
		if found := cycles(t.first()); len(found) > 0 {
			var names []string
			for _, key := range append(found[0], found[0][0]) {
				names = append(names, key.String())
			}
			return "", fmt.Errorf("draw the graph as svg: there is a cycle, %s; mermaid and dot draw it",
				strings.Join(names, " → "))
		}
		return d.SVG(), nil
	}
	return d.Mermaid(), nil
}
