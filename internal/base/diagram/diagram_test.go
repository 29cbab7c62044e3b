package diagram

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// sample has what is hard to draw: a line that passes several layers, an end that is placed high above what it leads
// to, a point of no return, and every kind and state.
func sample() Graph {
	return Graph{
		Name: "sample",
		Nodes: []Node{
			{Name: "first", Doc: `a & "b" <c>`, State: Done}, {Name: "left", State: Failed}, {Name: "right", State: Working},
			{Name: "end", State: Interrupted}, {Name: "alone", State: Never}, {Name: "seal", State: Never, Seal: true},
		},
		Edges: []Edge{
			{"first", "left", Output}, {"first", "right", After}, {"left", "end", Output}, {"right", "end", Output},
			{"first", "seal", Output}, {"end", "seal", Yields}, {"alone", "seal", Output},
		},
	}
}

func TestArrange(t *testing.T) {
	g := sample()
	l := g.arrange()
	for i, row := range l.layers {
		for j, s := range row[1:] {
			before := row[j]
			if free := (s.x - s.width/2) - (before.x + before.width/2); free < gap-0.01 {
				t.Errorf("layer %d: spots %d and %d are %.1f apart, closer than %d", i, j, j+1, free, gap)
			}
		}
	}
	for i, e := range g.Edges {
		route := l.routes[i]
		if g.Nodes[route[0].node].Name != e.From || g.Nodes[route[len(route)-1].node].Name != e.To {
			t.Errorf("the line of %v leads elsewhere", e)
		}
		for j, s := range route[1:] {
			if s.layer != route[j].layer+1 {
				t.Errorf("the line of %v leads from layer %d to %d", e, route[j].layer, s.layer)
			}
		}
	}
	if n := l.crossings(); n != 0 {
		t.Errorf("%d lines cross, and none has to", n)
	}
	for _, s := range l.layers[2] { // above what it leads to, not at the top
		if s.node == 4 {
			return
		}
	}
	t.Error("what nothing leads to does not stand right above what it leads to")
}

// TestCrossings holds the order of the layers against one that is known to be best.
func TestCrossings(t *testing.T) {
	var g Graph
	for _, name := range []string{"a", "b", "c", "d"} {
		g.Nodes = append(g.Nodes, Node{Name: name})
	}
	for i, name := range []string{"w", "x", "y", "z"} {
		g.Nodes = append(g.Nodes, Node{Name: name})
		g.Edges = append(g.Edges, Edge{From: g.Nodes[3-i].Name, To: name})
	}
	if unordered := g.place().crossings(); unordered != 6 {
		t.Fatalf("as written %d lines cross, not 6", unordered)
	}
	if n := g.arrange().crossings(); n != 0 {
		t.Errorf("%d lines cross, and none has to", n)
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	drawn := sample().SVG()
	decoder := xml.NewDecoder(strings.NewReader(drawn))
	texts := map[string]bool{}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts[string(text)] = true
		}
	}
	for _, want := range []string{"first", "seal", `a & "b" <c> (done)`, "failed", "comes after, if wanted"} {
		if !texts[want] {
			t.Errorf("the picture does not say %q", want)
		}
	}
	for _, s := range []State{Done, Failed, Working, Interrupted} {
		if n := strings.Count(drawn, s.colours().fill); n != 2 { // the box and the legend
			t.Errorf("the colour of %s stands %d times, not 2", s, n)
		}
	}
	if n := strings.Count(drawn, "marker-end"); n != len(sample().Edges)+3 {
		t.Errorf("%d lines are drawn", n)
	}
}

func TestTexts(t *testing.T) {
	mermaid, dot := sample().Mermaid(), sample().DOT()
	for _, want := range []string{
		"flowchart TD\n", `step_end["end"]`, `step_seal{{"seal"}}`, "step_first --> step_left\n",
		"step_first -.-> step_right\n",
		"step_end -. yields .-> step_seal\n", "class step_left failed\n", "classDef done fill:#",
	} {
		if !strings.Contains(mermaid, want) {
			t.Errorf("Mermaid lacks %q:\n%s", want, mermaid)
		}
	}
	if strings.Contains(mermaid, "classDef never") {
		t.Error("what never ran has no colour of its own in Mermaid")
	}
	for _, want := range []string{
		`digraph "sample" {`, `"first" [tooltip="a & \"b\" <c> (done)", fillcolor=` + fmt.Sprintf("%q", Done.colours().fill),
		`"seal" [`, "shape=hexagon",
		`"first" -> "left" [style=solid]`, `"first" -> "right" [style=dashed]`, `"end" -> "seal" [style=dotted]`,
	} {
		if !strings.Contains(dot, want) {
			t.Errorf("DOT lacks %q:\n%s", want, dot)
		}
	}
}
