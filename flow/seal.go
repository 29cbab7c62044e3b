package flow

// findSeals finds the points of no return that were passed and what lies
// behind them.
func (r *run) findSeals() {
	r.behind = r.graph.behind(r.snapshot)
}

// behind maps each step before a passed seal to that seal.
func (g *Graph) behind(s Snapshot) map[*node]*node {
	behind := map[*node]*node{}
	for _, n := range g.nodes {
		if !n.sealed || s.Steps[n.name].State != StateDone {
			continue
		}
		for m := range ancestors(n) {
			behind[m] = n
		}
	}
	return behind
}

// sealedAway passes over a step behind a seal. Its recorded output, whatever
// the step's state, stays at hand for steps that need it; it is looked at only
// by those.
func (r *run) sealedAway(n, by *node) result {
	r.finish(n, mustCanonical(r.record(n).Output))
	reason := "it lies before " + by.name + ", a point of no return that was passed"
	r.emit(Event{Kind: StepSkipped, Step: n.name, Message: reason})
	return result{node: n, StepReport: StepReport{Name: n.name, Outcome: Skipped, Reason: reason}}
}
