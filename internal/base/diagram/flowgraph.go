package diagram

import (
	"github.com/slipway-k8s/slipway/flow"
)

// Drawing is a graph with the states of a journal; of none, without states.
func Drawing(g *flow.Graph, recorded []flow.Status) Graph {
	states := map[string]State{}
	for _, s := range recorded {
		switch {
		case s.State != "":
			states[s.Name] = State(s.State)
		case s.Sealed != "": // its record is lost, and it is past all the same
			states[s.Name] = Done
		}
	}
	d := Graph{Name: g.Name()}
	for _, s := range g.Steps() {
		state, known := states[s.Name]
		if !known {
			state = Never
		}
		d.Nodes = append(d.Nodes, Node{Name: s.Name, Doc: s.Doc, State: state, Seal: s.Sealed})
		drawn := map[string]bool{}
		for _, l := range s.Behind { // the strongest reason first
			if !drawn[l.Step] {
				drawn[l.Step] = true
				d.Edges = append(d.Edges, Edge{From: l.Step, To: s.Name, Kind: edgeKind(l.Kind)})
			}
		}
	}
	return d
}

// Step is a step in `bootstrap graph --output json`.
type Step struct {
	flow.Info
	State State `json:"state"`
}

// WithStates are the steps with the states that were drawn.
func WithStates(g *flow.Graph, drawn Graph) []Step {
	infos := g.Steps() // in the order of the drawing's nodes
	all := make([]Step, len(infos))
	for i, info := range infos {
		all[i] = Step{info, drawn.Nodes[i].State}
	}
	return all
}

func edgeKind(k flow.LinkKind) Kind {
	switch k {
	case flow.LinkArgument, flow.LinkRerunAfter:
		return Output
	case flow.LinkOrderAfter:
		return Yields
	default:
		return After
	}
}
