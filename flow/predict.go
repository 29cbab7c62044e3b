package flow

import (
	"context"
	"fmt"
	"slices"
)

// Action is what a run would do with a step.
type Action string

// The actions. The values are stable: programs read them.
const (
	ActionRun        Action = "run"
	ActionMayRun     Action = "may-run" // if what another step is about to make comes out differently
	ActionReuse      Action = "reuse"
	ActionSkip       Action = "pass"   // it precedes a point of no return that was passed
	ActionRefuse     Action = "refuse" // a point of no return that was passed, and whose work is gone
	ActionUnknown    Action = "unknown"
	ActionNotReached Action = "not-reached" // the run would stop at a step before it
	// ActionAdopt is that of a step that runs and finds what it would create. Predict, which knows records alone, does not
	// give it: who knows what exists does.
	ActionAdopt Action = "adopt"
)

// Prediction is what a run would do with a step, and why.
type Prediction struct {
	Status
	Action Action
	// Why is a sentence for people; empty for a step whose record holds.
	Why string
}

// Predict says what a run with these targets (none: every step) would do with
// each step that it wants. Like Check it only reads. Without verify a record
// counts as true. Its error is that of the run, where the run would be refused.
func (g *Graph) Predict(ctx context.Context, j Journal, targets []string, verify bool) ([]Prediction, error) {
	var how *verification
	if verify {
		how = &verification{ctx, defaultGrace}
	}
	return g.predict(ctx, j, targets, how)
}

// predict is what Check and Predict have in common: the one computation of which steps would run.
func (g *Graph) predict(ctx context.Context, j Journal, targets []string, how *verification) ([]Prediction, error) {
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
	seen := map[*node]Action{}
	again := map[*node]bool{} // steps that would run, or might
	all := make([]Prediction, len(wanted))
	for i, s := range statuses(wanted, snapshot, seals.behind, how) {
		n := wanted[i]
		action, reason := n.action(s)
		s.After = n.rerunning(s, again)
		again[n] = action == ActionRun || len(s.After) > 0
		all[i] = Prediction{Status: s, Action: action, Why: reason}
		all[i].reach(seals.before(n), seen)
		seen[n] = all[i].Action
	}
	return all, ctx.Err()
}

// action is what a run would do with a step as far as its own record goes, in
// the order in which a run decides.
func (n *node) action(s Status) (Action, string) {
	passed := n.sealed && s.State == StateDone
	gone := ActionRun
	if passed {
		gone = ActionRefuse
	}
	switch {
	case s.Sealed != "":
		return ActionSkip, "it lies before " + s.Sealed + ", a point of no return that was passed"
	case s.State != StateDone:
		return ActionRun, unfinished(s.State)
	case len(s.Changes) > 0 && !passed:
		return ActionRun, "changed: " + joined(s.Changed)
	case !s.Asked || s.Verdict.Answer() == AnswerHolds:
		return ActionReuse, ""
	case s.Verdict.Answer() == AnswerGone:
		return gone, "gone: " + s.Verdict.Reason()
	default:
		return ActionUnknown, "could not verify: " + s.Verdict.Err().Error()
	}
}

// rerunning are the steps that would run, or might, and whose output a done step was made from.
func (n *node) rerunning(s Status, again map[*node]bool) []string {
	if s.State != StateDone || s.Sealed != "" || n.sealed {
		return nil
	}
	var names []string
	for _, m := range slices.Concat(n.inputs, n.rerunAfter) {
		if again[m] && !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// reach changes the action of a step for those of the steps that come before.
func (f *Prediction) reach(before []*node, seen map[*node]Action) {
	if f.Action == ActionSkip {
		return
	}
	for _, m := range before {
		switch seen[m] {
		case ActionUnknown, ActionRefuse, ActionNotReached:
			f.Action, f.Why = ActionNotReached, fmt.Sprintf("the run would stop at %s", m.name)
			return
		}
	}
	if f.Action == ActionReuse && len(f.After) > 0 {
		f.Action, f.Why = ActionMayRun, "if "+joined(f.After)+" comes out differently"
	}
}
