// Package diagram draws a graph of steps, as text for Mermaid and Graphviz and as a picture (SVG).
package diagram

import (
	"fmt"
	"strings"
	"unicode"
)

// Graph is what is drawn. Each edge's ends are names of nodes, and there is no cycle.
type Graph struct {
	Name  string
	Title string // of the picture; empty: it shows the steps of Name
	Nodes []Node // each after those that it depends on
	Edges []Edge
}

// Node is one step.
type Node struct {
	Name  string // in kebab case
	Doc   string
	State State
	Seal  bool // a point of no return
}

// State is how far a step came.
type State string

// The states, each with a colour of its own.
const (
	Never       State = "never"
	Working     State = "started"
	Done        State = "done"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// Edge leads from a step to one that comes after it.
type Edge struct {
	From, To string
	Kind     Kind
}

// Kind says why a step comes after another.
type Kind int

// The kinds, each with a line of its own.
const (
	Output Kind = iota // it is made from, or made again with, the other's output: solid
	After              // order alone: dashed
	Yields             // order where a run wants both: dotted
)

// colours are those of a state on a light ground; they can be distinguished without colour by the border's strength and
// the state's name in the legend and the tooltip.
type colours struct{ fill, border, text string }

func (s State) colours() colours {
	switch s {
	case Done:
		return colours{"#d9f2e0", "#1a7f37", "#0b3d1a"}
	case Working:
		return colours{"#dbeafe", "#1d5fbf", "#0c2f66"}
	case Failed:
		return colours{"#fde0dc", "#c0281c", "#5f0f09"}
	case Interrupted:
		return colours{"#fdf0c8", "#a06a00", "#4d3300"}
	default:
		return colours{"#f4f5f7", "#6b7280", "#1f2937"}
	}
}

// states are those that occur in the graph, in the order of their declaration.
func (g Graph) states() []State {
	var found []State
	for _, s := range []State{Never, Working, Done, Failed, Interrupted} {
		for _, n := range g.Nodes {
			if n.State == s {
				found = append(found, s)
				break
			}
		}
	}
	return found
}

// Mermaid is the graph as a Mermaid flowchart, without the fence of Markdown.
func (g Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for _, n := range g.Nodes {
		left, right := "[", "]"
		if n.Seal {
			left, right = "{{", "}}"
		}
		// An id of its own: "end" and the like are keywords of Mermaid.
		fmt.Fprintf(&b, "  %s%s%q%s\n", mermaidID(n.Name), left, n.Name, right)
	}
	for _, e := range g.Edges {
		arrow := map[Kind]string{Output: "-->", After: "-.->", Yields: "-. yields .->"}[e.Kind]
		fmt.Fprintf(&b, "  %s %s %s\n", mermaidID(e.From), arrow, mermaidID(e.To))
	}
	for _, s := range g.states() {
		if s == Never {
			continue
		}
		var ids []string
		for _, n := range g.Nodes {
			if n.State == s {
				ids = append(ids, mermaidID(n.Name))
			}
		}
		c := s.colours()
		fmt.Fprintf(&b, "  classDef %s fill:%s,stroke:%s,color:%s\n", s, c.fill, c.border, c.text)
		fmt.Fprintf(&b, "  class %s %s\n", strings.Join(ids, ","), s)
	}
	return b.String()
}

// mermaidID is a name as an identifier. Names in lower case stay different ones.
func mermaidID(name string) string {
	var b strings.Builder
	b.WriteString("step_")
	for _, r := range name {
		switch {
		case r == '-':
			b.WriteByte('_')
		case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "X%X", r)
		}
	}
	return b.String()
}

// DOT is the graph in the language of Graphviz.
func (g Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n", g.Name)
	b.WriteString("  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n")
	for _, n := range g.Nodes {
		c := n.State.colours()
		shape := ""
		if n.Seal {
			shape = ", shape=hexagon, style=filled"
		}
		fmt.Fprintf(&b, "  %q [tooltip=%q, fillcolor=%q, color=%q, fontcolor=%q%s];\n", n.Name, n.tooltip(), c.fill, c.border,
			c.text, shape)
	}
	for _, e := range g.Edges {
		style := map[Kind]string{Output: "solid", After: "dashed", Yields: "dotted"}[e.Kind]
		fmt.Fprintf(&b, "  %q -> %q [style=%s];\n", e.From, e.To, style)
	}
	b.WriteString("}\n")
	return b.String()
}

func (n Node) tooltip() string {
	if n.State == Never {
		return n.Doc
	}
	return fmt.Sprintf("%s (%s)", n.Doc, n.State)
}
