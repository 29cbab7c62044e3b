package flow

import (
	"context"
	"fmt"
	"slices"
)

// Prospect is what a run would do with a step.
type Prospect string

// The prospects. The words are stable: programs read them.
const (
	WouldRun    Prospect = "run"
	MayRun      Prospect = "may-run" // if what another step is about to make comes out differently
	WouldReuse  Prospect = "reuse"
	WouldPass   Prospect = "pass"   // it lies before a point of no return that was passed
	WouldRefuse Prospect = "refuse" // a point of no return that was passed, and whose work is gone
	CannotTell  Prospect = "unknown"
	NotReached  Prospect = "not-reached" // the run would stop at a step before it
)

// Foresight is what a run would do with a step, and why.
type Foresight struct {
	Status
	Prospect Prospect
	// Why is a sentence for people; empty for a step whose record holds.
	Why string
}

// Foresee tells what a run with these targets (none: every step) would do with
// each step that it wants. It is Check in what it reads and writes; where the
// world is not asked, a record is taken at its word. Its error is that of the
// run, where the run would be refused.
func (g *Graph) Foresee(ctx context.Context, j Journal, targets []string, world bool) ([]Foresight, error) {
	var questions *asking
	if world {
		questions = &asking{ctx, defaultGrace}
	}
	return g.predict(ctx, j, targets, questions)
}

// predict is what Check and Foresee have in common: the one computation of which steps would run.
func (g *Graph) predict(ctx context.Context, j Journal, targets []string, world *asking) ([]Foresight, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	snapshot, err := g.load(ctx, j)
	if err != nil {
		return nil, err
	}
	seals, err := g.seals(snapshot)
	if err != nil {
		return nil, err
	}
	wanted, err := g.wanted(targets, seals)
	if err != nil {
		return nil, err
	}
	for _, name := range targets {
		if by := seals.behind[g.find(name)]; by != nil {
			return nil, &SealedError{Step: name, By: by.name}
		}
	}
	seen := map[*node]Prospect{}
	again := map[*node]bool{} // steps that would run, or might
	all := make([]Foresight, len(wanted))
	for i, s := range statuses(wanted, snapshot, seals.behind, world) {
		n := wanted[i]
		prospect, reason := n.prospect(s)
		s.After = n.rerunning(s, again)
		again[n] = prospect == WouldRun || len(s.After) > 0
		all[i] = Foresight{Status: s, Prospect: prospect, Why: reason}
		all[i].heed(seals.before(n), seen)
		seen[n] = all[i].Prospect
	}
	return all, ctx.Err()
}

// prospect is what a run would do with a step as far as its own record goes, in
// the order in which a run decides.
func (n *node) prospect(s Status) (Prospect, string) {
	passed := n.sealed && s.State == StateDone
	gone := WouldRun
	if passed {
		gone = WouldRefuse
	}
	switch {
	case s.Sealed != "":
		return WouldPass, "it lies before " + s.Sealed + ", a point of no return that was passed"
	case s.State != StateDone:
		return WouldRun, unfinished(s.State)
	case len(s.Changes) > 0 && !passed:
		return WouldRun, "changed: " + joined(s.Changed)
	case !s.Asked || s.Verdict.Answer() == AnswerHolds:
		return WouldReuse, ""
	case s.Verdict.Answer() == AnswerGone:
		return gone, "gone: " + s.Verdict.Reason()
	default:
		return CannotTell, "could not ask: " + s.Verdict.Err().Error()
	}
}

// rerunning are the steps that would run, or might, and whose output a done step was made from.
func (n *node) rerunning(s Status, again map[*node]bool) []string {
	if s.State != StateDone || s.Sealed != "" || n.sealed {
		return nil
	}
	var names []string
	for _, m := range slices.Concat(n.inputs, n.follows) {
		if again[m] && !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// heed changes the prospect of a step for those of the steps that come before.
func (f *Foresight) heed(before []*node, seen map[*node]Prospect) {
	if f.Prospect == WouldPass {
		return
	}
	for _, m := range before {
		switch seen[m] {
		case CannotTell, WouldRefuse, NotReached:
			f.Prospect, f.Why = NotReached, fmt.Sprintf("the run would stop at %s", m.name)
			return
		}
	}
	if f.Prospect == WouldReuse && len(f.After) > 0 {
		f.Prospect, f.Why = MayRun, "if "+joined(f.After)+" comes out differently"
	}
}
