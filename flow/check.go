package flow

import (
	"context"
	"sync"
	"time"
)

// Status is what the journal records of a step, and what its Verify found.
type Status struct {
	Name    string
	Doc     string
	State   State  // "" if it was never begun
	Attempt int    // of the last try
	Run     string // that began it
	Started time.Time
	Ended   time.Time // zero: it is running, or its run was killed
	Said    string
	Error   string
	// Changed lists what differs between what the step was made from when it was
	// last done and what it would be made from today: fields of its spec, outputs
	// of other steps. A failed attempt between the two changes nothing in it.
	Changed []string
	// Changes are the same, with the values where they are in the spec.
	Changes []Change
	// After lists the steps whose output a done step takes, or reruns after, and that
	// would run, or that might because of their own After. If their output comes
	// out differently, this step runs again, too.
	After []string
	// Sealed names the passed point of no return that the step precedes;
	// such a step is not verified.
	Sealed string
	// Asked reports whether Verify was called, so that Verdict is its answer: the
	// step is done and has a Verify.
	Asked   bool
	Verdict Verdict
}

// Check compares the journal with the actual state, all steps at once. It only reads:
// no step runs, nothing is written, and the lock is not taken, so it can be
// called while a run is at work.
func (g *Graph) Check(ctx context.Context, j Journal) ([]Status, error) {
	return g.check(ctx, j, &verification{ctx, defaultGrace})
}

// CheckUntil is Check with a bound on the time for all the Verify functions
// together: one that has not answered when the context verifying ends is
// Unknown, with the cause of that context.
func (g *Graph) CheckUntil(ctx, verifying context.Context, j Journal) ([]Status, error) {
	return g.check(ctx, j, &verification{verifying, shortGrace})
}

// shortGrace is for a Verify that has nothing more to find out.
const shortGrace = 50 * time.Millisecond

// verification says how Verify functions are called; nil: they are not.
type verification struct {
	ctx   context.Context
	grace time.Duration
}

// Recorded is Check without Verify, for when the systems that it asks cannot be reached.
func (g *Graph) Recorded(ctx context.Context, j Journal) ([]Status, error) {
	return g.check(ctx, j, nil)
}

func (g *Graph) check(ctx context.Context, j Journal, how *verification) ([]Status, error) {
	predicted, err := g.predict(ctx, j, nil, how)
	if predicted == nil {
		return nil, err
	}
	all := make([]Status, len(predicted))
	for i, p := range predicted {
		all[i] = p.Status
	}
	return all, err
}

// statuses verifies all the steps at once.
func statuses(nodes []*node, snapshot Snapshot, behind map[*node]*node, how *verification) []Status {
	all := make([]Status, len(nodes))
	var each sync.WaitGroup
	for i, n := range nodes {
		each.Go(func() { all[i] = n.status(snapshot, behind[n], how) })
	}
	each.Wait()
	return all
}

func (n *node) status(snapshot Snapshot, seal *node, how *verification) Status {
	rec := snapshot.Steps[n.name]
	s := Status{
		Name: n.name, Doc: n.doc, State: rec.State, Attempt: rec.Attempt, Run: rec.Run,
		Started: rec.Started, Ended: rec.Ended, Said: rec.Said, Error: rec.Error,
	}
	if seal != nil {
		s.Sealed = seal.name
		return s
	}
	if rec.State == "" {
		return s
	}
	k, err := n.key(func(m *node) string { return digest(mustCanonical(snapshot.Steps[m.name].Output)) })
	if err == nil {
		s.Changes = k.changesSince(rec)
		s.Changed = named(s.Changes)
	}
	if rec.State != StateDone || n.verify == nil || how == nil {
		return s
	}
	s.Asked = true
	output, err := n.decode(rec.Output)
	if n.sealed {
		output, err = ofAnyRelease(output, err)
	}
	if err != nil {
		s.Verdict = Gone("its recorded output does not restore: %v", err)
		return s
	}
	s.Verdict = ask(how.ctx, n, output, how.grace)
	if how.ctx.Err() != nil && s.Verdict.Answer() == AnswerUnknown {
		s.Verdict = Unknown(context.Cause(how.ctx))
	}
	return s
}
