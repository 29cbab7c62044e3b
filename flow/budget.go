package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Wait is a wait inside a step, for the arithmetic of deadlines.
type Wait struct {
	For    string        `json:"for"`      // what it waits for, and where its length is set
	Within time.Duration `json:"withinNs"` // then it ends
}

// waitsFit checks that the inner waits, one after another, end before the deadline.
func (n *node) waitsFit() error {
	var sum time.Duration
	terms := make([]string, len(n.waits))
	for i, w := range n.waits {
		if w.Within < 0 {
			return fmt.Errorf("step %s: the wait for %s is of %s, which is negative", n.name, w.For, w.Within)
		}
		sum += w.Within
		terms[i] = fmt.Sprintf("%s for %s", w.Within, w.For)
	}
	if n.deadline <= 0 || sum <= n.deadline {
		return nil
	}
	arithmetic := strings.Join(terms, " + ")
	if len(terms) > 1 {
		arithmetic += " = " + sum.String()
	}
	return fmt.Errorf("step %s waits up to %s, which is %s more than its deadline of %s: "+
		"raise the deadline or shorten the waits", n.name, arithmetic, sum-n.deadline, n.deadline)
}

// BudgetError refuses a deadline of a run in which its steps may not fit though
// each keeps its own. Nothing was run.
type BudgetError struct {
	Deadline time.Duration
	Needs    time.Duration // the most that the run can take
	Terms    []Wait        // what that adds up from: steps with their deadlines
	Parallel int           // of the run; 0: as many steps at once as can
	Endless  string        // the first step without a deadline, with which nothing adds up
}

func (e *BudgetError) Error() string {
	if e.Endless != "" {
		return fmt.Sprintf("the run has a deadline of %s and its step %s has none, so that it may take longer", e.Deadline,
			e.Endless)
	}
	terms := make([]string, len(e.Terms))
	for i, t := range e.Terms {
		terms[i] = t.For + " " + t.Within.String()
	}
	how := "one after another"
	if e.Parallel > 1 {
		how = fmt.Sprintf("at most %d at once", e.Parallel)
	}
	return fmt.Sprintf("the run's deadline of %s is %s less than its steps may take by their own deadlines (and %s each "+
		"to verify), %s: %s = %s: "+
		"raise the run's deadline to that or shorten the steps'", e.Deadline, e.Needs-e.Deadline, VerifyWithin, how,
		strings.Join(terms, " + "), e.Needs)
}

// Fits checks that a run of the targets cannot meet its own deadline before a
// step meets that step's: the deadline is not less than the sum of the steps'
// along the longest path through the graph. The error is a *BudgetError, or says
// why such a run would be refused.
func (g *Graph) Fits(deadline time.Duration, parallel int, targets ...string) error {
	if err := g.Validate(); err != nil {
		return err
	}
	wanted, err := g.wanted(targets, seals{})
	if err != nil {
		return err
	}
	return fits(wanted, seals{}, deadline, parallel)
}

func fits(wanted []*node, s seals, deadline time.Duration, parallel int) error {
	if deadline <= 0 {
		return nil
	}
	wanted = slices.DeleteFunc(slices.Clone(wanted), func(n *node) bool { return s.behind[n] != nil })
	e := &BudgetError{Deadline: deadline, Parallel: parallel}
	for _, n := range wanted {
		if n.deadline <= 0 {
			e.Endless = n.name
			return e
		}
	}
	path := longest(wanted, s)
	if parallel == 1 {
		path = wanted
	}
	for _, n := range path {
		e.Terms = append(e.Terms, Wait{n.name, n.most()})
		e.Needs += n.most()
	}
	// With too few places at once, the rest of the work waits for one: no
	// order of it takes longer than this (R. L. Graham, 1966).
	if parallel > 1 {
		var rest time.Duration
		for _, n := range wanted {
			if !slices.Contains(path, n) {
				rest += n.most()
			}
		}
		if rest = (rest/time.Duration(parallel) + time.Second - 1).Truncate(time.Second); rest > 0 {
			e.Terms = append(e.Terms, Wait{fmt.Sprintf("1/%d of the others", parallel), rest})
			e.Needs += rest
		}
	}
	if e.Needs <= deadline {
		return nil
	}
	return e
}

// most is the longest that a run can be busy with a step that has a deadline:
// its record is verified, found to be gone, and the step runs.
func (n *node) most() time.Duration {
	if n.verify == nil {
		return n.deadline
	}
	return n.deadline + VerifyWithin
}

// longest is the path through steps, in order, that takes longest by their
// deadlines.
func longest(wanted []*node, s seals) []*node {
	type end struct {
		took   time.Duration
		before *node
	}
	ends := map[*node]end{}
	var last *node
	for _, n := range wanted {
		e := end{took: n.most()}
		for _, m := range s.before(n) {
			if before, ok := ends[m]; ok && before.took+n.most() > e.took {
				e = end{before.took + n.most(), m}
			}
		}
		ends[n] = e
		if last == nil || e.took > ends[last].took {
			last = n
		}
	}
	var path []*node
	for n := last; n != nil; n = ends[n].before {
		path = append(path, n)
	}
	slices.Reverse(path)
	return path
}

// RunDeadlineError says that a run was not done within its deadline. What is
// done is kept.
type RunDeadlineError struct {
	Deadline time.Duration
	AtWork   []StepReport // the steps that it cut short
}

func (e *RunDeadlineError) Error() string {
	var at []string
	for _, s := range e.AtWork {
		line := s.Name
		if s.Reason != "" {
			line += " (" + s.Reason + ")"
		}
		at = append(at, line)
	}
	work := "no step was at work"
	if len(at) > 0 {
		work = "at work: " + strings.Join(at, "; ")
	}
	return fmt.Sprintf("the run is not done within its deadline of %s; %s", e.Deadline, work)
}

// Is makes it a context.DeadlineExceeded.
func (e *RunDeadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// cutShort is the run's error where its own deadline ended it, and nil where
// another context did.
func (r *run) cutShort(ctx context.Context, report *Report) error {
	var late *RunDeadlineError
	if !errors.As(context.Cause(ctx), &late) {
		return nil
	}
	e := &RunDeadlineError{Deadline: late.Deadline}
	for _, s := range report.Steps {
		if s.Outcome == Interrupted {
			e.AtWork = append(e.AtWork, s)
		}
	}
	return e
}
