// Package graphview draws a graph of steps with the states that a journal has of them.
package graphview

import (
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/diagram"
)

// Drawing is a graph with the states of a journal; of none, without states.
func Drawing(g *flow.Graph, recorded []flow.Status) diagram.Graph {
	states := map[string]diagram.State{}
	for _, s := range recorded {
		switch {
		case s.State != "":
			states[s.Name] = diagram.State(s.State)
		case s.Sealed != "": // its record is lost, and it is past all the same
			states[s.Name] = diagram.Done
		}
	}
	d := diagram.Graph{Name: g.Name()}
	for _, s := range g.Steps() {
		state, known := states[s.Name]
		if !known {
			state = diagram.Never
		}
		d.Nodes = append(d.Nodes, diagram.Node{Name: s.Name, Doc: s.Doc, State: state, Seal: s.Sealed})
		drawn := map[string]bool{}
		for _, l := range s.Behind { // the strongest reason first
			if !drawn[l.Step] {
				drawn[l.Step] = true
				d.Edges = append(d.Edges, diagram.Edge{From: l.Step, To: s.Name, Kind: edgeKind(l.Kind)})
			}
		}
	}
	return d
}

// Step is a step in `bootstrap graph --output json`.
type Step struct {
	flow.Info
	State diagram.State `json:"state"`
}

// WithStates are the steps with the states that were drawn.
func WithStates(g *flow.Graph, drawn diagram.Graph) []Step {
	infos := g.Steps() // in the order of the drawing's nodes
	all := make([]Step, len(infos))
	for i, info := range infos {
		all[i] = Step{info, drawn.Nodes[i].State}
	}
	return all
}

func edgeKind(k flow.LinkKind) diagram.Kind {
	switch k {
	case flow.LinkArgument, flow.LinkRerunAfter:
		return diagram.Output
	case flow.LinkOrderAfter:
		return diagram.Yields
	default:
		return diagram.After
	}
}
