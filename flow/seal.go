package flow

import (
	"fmt"
	"slices"
)

// ResumeWhen tells of a sealed step that it has gone past the point of no return
// although its record does not say so: its run died in it, or the journal was
// lost. Then only going on is right: what lies before it is passed over, as if
// the step were done, and the step itself runs. It is asked at the start of
// every run and must only read what is at hand. An error stops the run: a step
// before the seal must not run on a guess.
func (s *Step[T]) ResumeWhen(passed func() (bool, error)) *Step[T] {
	s.n.resumeWhen = passed
	return s
}

// ExemptFromSeal keeps the step in use once a point of no return that it lies
// before was passed: it is still verified, and run again when its spec changed.
// It is for a step that depends on nothing that the sealed step takes away.
//
// From then on the step comes after the sealed step in a run that wants both,
// and of what it needs it needs only steps that are exempt, too. So the outputs
// that it takes or follows must be those of exempt steps; other steps before it
// can be named with After. Nothing that is passed over, and no passed seal,
// brings an exempt step into a run: such a run must name it.
func (s *Step[T]) ExemptFromSeal() *Step[T] {
	s.n.exempt = true
	return s
}

// exemptFits refuses arguments over which a seal that was passed would come.
func (n *node) exemptFits() error {
	if n.exempt && n.sealed {
		return fmt.Errorf("step %s is a point of no return, and cannot be exempt from others", n.name)
	}
	for _, m := range slices.Concat(n.inputs, n.rerunAfter) {
		switch {
		case n.sealed && m.exempt:
			return fmt.Errorf("step %s is a point of no return and takes or follows the output of %s, which is exempt from it "+
				"and comes after it once it was passed", n.name, m.name)
		case n.exempt && !m.exempt:
			return fmt.Errorf("step %s is exempt from points of no return and takes or follows the output of %s, which is not: "+
				"it may be missing, or out of date, once one was passed", n.name, m.name)
		}
	}
	return nil
}

// seals are the points of no return that were passed, and what that does to the
// order of a graph. The zero seals are none.
type seals struct {
	passed map[*node]bool
	behind map[*node]*node   // each step that is passed over → a passed seal that it lies before
	exempt map[*node][]*node // each exempt step that lies before passed seals → those
}

// seals finds the points of no return that were passed.
func (g *Graph) seals(s Snapshot) (seals, error) {
	found := seals{passed: map[*node]bool{}, behind: map[*node]*node{}, exempt: map[*node][]*node{}}
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
	return found, nil
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

// before are the steps that n waits for where a run wants them. What is passed
// over waits for nothing, and a passed seal for nothing else: the exempt steps
// before it wait for it, and whatever it yields to may wait for one of those.
func (s seals) before(n *node) []*node {
	switch {
	case s.behind[n] != nil:
		return nil
	case s.passed[n]:
		return s.needs(n)
	case s.exempt[n] != nil:
		return slices.Concat(s.needs(n), n.orderAfter, s.exempt[n])
	default:
		return n.before()
	}
}

// skipSealed passes over a step behind a seal. Its recorded output, whatever
// the step's state, stays at hand for steps that need it; it is looked at only
// by those.
func (r *run) skipSealed(n, by *node) result {
	r.finish(n, mustCanonical(r.record(n).Output))
	reason := "it lies before " + by.name + ", a point of no return that was passed"
	r.emit(Event{Kind: StepSkipped, Step: n.name, Message: reason})
	return result{node: n, StepReport: StepReport{Name: n.name, Outcome: Skipped, Reason: reason}}
}
