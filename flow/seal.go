package flow

import "fmt"

// Underway tells of a sealed step that it has gone past the point of no return
// although its record does not say so: its run died in it, or the journal was
// lost. Then only going on is right: what lies before it is passed over, as if
// the step were done, and the step itself runs. It is asked at the start of
// every run and must only read what is at hand. An error stops the run: a step
// before the seal must not run on a guess.
func (s *Step[T]) Underway(passed func() (bool, error)) *Step[T] {
	s.n.passed = passed
	return s
}

// findSeals finds the points of no return that were passed and what lies
// behind them.
func (r *run) findSeals() (err error) {
	r.behind, err = r.graph.behind(r.snapshot)
	return err
}

// behind maps each step before a passed seal to that seal.
func (g *Graph) behind(s Snapshot) (map[*node]*node, error) {
	behind := map[*node]*node{}
	for _, n := range g.nodes {
		if !n.sealed {
			continue
		}
		passed := s.Steps[n.name].State == StateDone
		if !passed && n.passed != nil {
			var err error
			if passed, err = n.passed(); err != nil {
				return nil, fmt.Errorf("find out how far step %s, a point of no return, has gone: %w", n.name, err)
			}
		}
		if !passed {
			continue
		}
		for m := range ancestors(n) {
			behind[m] = n
		}
	}
	return behind, nil
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
