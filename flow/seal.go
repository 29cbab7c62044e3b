package flow

import (
	"fmt"
	"slices"
)

// ExemptFromSeal keeps the step in use once a point of no return that it precedes was passed: it is still verified, and
// run again when its spec changed. It is for a step that depends on nothing that the sealed step deletes or moves.
//
// From then on the step comes after the sealed step in a run that wants both, unless the sealed step is ordered after
// it by OrderAfter: then it, and what it needs, stays before the sealed step, which may need it to be verified. Of what
// it needs it needs only steps that are exempt, too. So the outputs that it takes, or reruns after, must be those of
// exempt steps; other steps before it can be named with After. Once the seal was passed, no other step brings an exempt
// step into a run: its name has to be among the targets.
func (s *Step[T]) ExemptFromSeal() *Step[T] {
	s.n.exempt = true
	return s
}

// exemptFits refuses outputs that a passed seal would make unavailable or outdated.
func (n *node) exemptFits() error {
	if n.exempt && n.sealed {
		return fmt.Errorf("step %s is a point of no return, and cannot be exempt from others", n.name)
	}
	for _, m := range slices.Concat(n.inputs, n.rerunAfter) {
		switch {
		case n.sealed && m.exempt:
			return fmt.Errorf("step %s is a point of no return and takes, or reruns after, the output of %s, which is "+
				"exempt from it and comes after it once it was passed", n.name, m.name)
		case n.exempt && !m.exempt:
			return fmt.Errorf("step %s is exempt from points of no return and takes, or reruns after, the output of %s, "+
				"which is not: it may be missing, or out of date, once one was passed", n.name, m.name)
		}
	}
	return nil
}

// seals are the points of no return that were passed, and what that does to the
// order of a graph. The zero seals are none.
type seals struct {
	passed map[*node]bool
	behind map[*node]*node   // each step that is skipped → a passed seal that it precedes
	exempt map[*node][]*node // each exempt step that precedes passed seals → those
	// ahead are the exempt steps that a passed seal is ordered after, and all that is before those: they wait for no
	// seal.
	ahead map[*node]bool
}

// seals finds the points of no return that were passed.
func (g *Graph) seals(s Snapshot) (seals, error) {
	found := seals{passed: map[*node]bool{}, behind: map[*node]*node{}, exempt: map[*node][]*node{},
		ahead: map[*node]bool{}}
	for _, n := range g.nodes {
		if !n.sealed {
			continue
		}
		passed := s.Steps[n.name].State == StateDone
		if !passed && n.resumeWhen != nil {
			var err error
			if passed, err = n.resumeWhen(); err != nil {
				return seals{}, fmt.Errorf("find out how far step %s, a point of no return, has gone: %w", n.name, err)
			}
		}
		if !passed {
			continue
		}
		found.passed[n] = true
		for m := range ancestors(n) {
			if m.exempt {
				found.exempt[m] = append(found.exempt[m], n)
			} else {
				found.behind[m] = n
			}
		}
	}
	for n := range found.passed {
		found.keepAhead(n)
	}
	return found, nil
}

// keepAhead finds the steps that stay before a passed seal.
func (s seals) keepAhead(n *node) {
	var keep func(*node)
	keep = func(m *node) {
		if s.behind[m] != nil || s.ahead[m] {
			return
		}
		s.ahead[m] = true
		for _, first := range m.before() {
			keep(first)
		}
	}
	for _, m := range n.orderAfter {
		if m.exempt {
			keep(m)
		}
	}
}

// needs are the steps that a run that wants n wants, too.
func (s seals) needs(n *node) []*node {
	dropped := func(m *node) bool { return false }
	switch {
	case s.exempt[n] != nil:
		dropped = func(m *node) bool { return s.behind[m] != nil }
	case s.behind[n] != nil || s.passed[n]:
		dropped = func(m *node) bool { return s.exempt[m] != nil }
	}
	return slices.DeleteFunc(n.needs(), dropped)
}

// before are the steps that n waits for where a run wants them. A skipped step
// waits for nothing, and a passed seal for the skipped steps, and the exempt ones
// that stay before it. The other exempt steps before it wait for it, and the steps
// that it is ordered after may wait for one of those.
func (s seals) before(n *node) []*node {
	switch {
	case s.behind[n] != nil:
		return nil
	case s.passed[n]:
		ahead := slices.DeleteFunc(slices.Clone(n.orderAfter), func(m *node) bool { return !s.ahead[m] })
		return append(s.needs(n), ahead...)
	case s.exempt[n] != nil && s.ahead[n]:
		return append(s.needs(n), n.orderAfter...)
	case s.exempt[n] != nil:
		return slices.Concat(s.needs(n), n.orderAfter, s.exempt[n])
	default:
		return n.before()
	}
}

// skipSealed skips a step that precedes a passed seal. Its recorded output,
// whatever the step's state, stays available to the steps that need it.
func (r *run) skipSealed(n, by *node) result {
	r.finish(n, mustCanonical(r.record(n).Output))
	reason := "it lies before " + by.name + ", a point of no return that was passed"
	r.emit(Event{Kind: StepSkipped, Step: n.name, Message: reason})
	return result{node: n, StepReport: StepReport{Name: n.name, Outcome: Skipped, Reason: reason}}
}
