package flow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// VerifyWithin bounds one Verify. One that takes longer has found out
	// nothing.
	VerifyWithin = 20 * time.Second
	// verifyAgainAfter is the pause before a Verify is asked a second time, see Options.Passing. Each further pause is
	// twice as long as the one before it, up to verifyAgainAtMost: five times within 8 s.
	verifyAgainAfter  = 500 * time.Millisecond
	verifyAgainAtMost = 4 * time.Second
	// saveWithin bounds one write of the journal, which cancellation does not.
	saveWithin = 30 * time.Second
	// defaultGrace is short because a person who pressed Ctrl-C waits for it.
	defaultGrace = time.Second
)

// Options say how a graph is run. The zero value runs every step, as many at
// once as possible, with a journal in memory.
type Options struct {
	// Journal remembers; nil: in memory.
	Journal Journal
	// Run is the run's id, in its events and records; empty: one is made.
	Run string
	// Targets are the steps wanted, with all that they depend on; empty: every step.
	Targets []string
	// Parallel is the most steps at once; 0: no bound.
	Parallel int
	// Deadline bounds the run; 0: its steps' deadlines alone do. It is refused,
	// with a *BudgetError, where it is less than the run can take by those.
	Deadline time.Duration
	// Observe gets every event, in order, one at a time. It must not block for
	// long: steps wait for it.
	Observe func(Event)
	// Passing tells whether an error that kept a Verify from answering may pass in a moment, as a refused connection
	// may. Then it is asked again for a few seconds, within VerifyWithin, before that stops the run. nil: no error may.
	Passing func(error) bool
	// Grace is how long a step may take to return once its context is over, before it is left behind; 0: one second.
	// What is left behind may continue until the process ends.
	Grace time.Duration
}

// Run brings every wanted step to done. The report is never nil; it is empty
// when the run ended before its first step. The error is nil when every wanted
// step is done. Otherwise it wraps one *StepError for each step that failed, or
// ErrInterrupted and the context's error, or one of the package's other errors
// when the run was refused.
func (g *Graph) Run(ctx context.Context, opt Options) (*Report, error) {
	r := &run{
		graph: g, opt: opt, journal: opt.Journal, id: opt.Run, began: time.Now(),
		outputs: map[*node]json.RawMessage{},
	}
	if r.journal == nil {
		r.journal = Memory()
	}
	if r.id == "" {
		r.id = newID()
	}
	if r.opt.Grace == 0 {
		r.opt.Grace = defaultGrace
	}
	report := &Report{Run: r.id, Graph: g.name, Started: r.began}
	if err := g.Validate(); err != nil {
		return report, err
	}
	possible, err := g.wanted(opt.Targets, seals{})
	if err != nil {
		return report, err
	}
	if err := fits(possible, seals{}, opt.Deadline, opt.Parallel); err != nil {
		return report, err
	}
	if opt.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, opt.Deadline, &RunDeadlineError{Deadline: opt.Deadline})
		defer cancel()
	}
	unlock, err := r.journal.Lock(ctx)
	if err != nil {
		return report, fmt.Errorf("lock the journal: %w", err)
	}
	err = r.all(ctx, report)
	if unlockErr := unlock(); unlockErr != nil {
		err = errors.Join(err, fmt.Errorf("unlock the journal: %w", unlockErr))
	}
	return report, err
}

// newID is a run's id: when it began, and enough chance to tell two apart.
func newID() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return time.Now().UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}

// run is one run of a graph.
type run struct {
	graph   *Graph
	opt     Options
	journal Journal
	id      string
	began   time.Time
	seals   seals
	stop    atomic.Bool // a step failed: nothing new starts

	mu       sync.Mutex // guards what follows
	snapshot Snapshot
	outputs  map[*node]json.RawMessage // canonical, of the steps that are done

	observing sync.Mutex // one event at a time
}

// result is how a step came out of the run.
type result struct {
	node *node
	StepReport
	err error
}

// all loads the journal, runs the wanted steps and reports.
func (r *run) all(ctx context.Context, report *Report) error {
	var err error
	if r.snapshot, err = r.graph.load(ctx, r.journal); err != nil {
		return err
	}
	if r.seals, err = r.graph.seals(r.snapshot); err != nil {
		return err
	}
	wanted, err := r.graph.wanted(r.opt.Targets, r.seals)
	if err == nil {
		err = fits(wanted, r.seals, r.opt.Deadline, r.opt.Parallel)
	}
	if err != nil {
		return err
	}
	for _, name := range r.opt.Targets {
		if by := r.seals.behind[r.graph.find(name)]; by != nil {
			return &SealedError{Step: name, By: by.name}
		}
	}
	r.emit(Event{Kind: RunStarted, Message: fmt.Sprintf("%d steps", len(wanted))})
	results := r.schedule(ctx, wanted)

	var failures []error
	for _, n := range wanted {
		res, ok := results[n]
		if !ok {
			res = r.skip(ctx, n)
		}
		if res.Outcome == Failed {
			failures = append(failures, res.err)
		}
		report.Steps = append(report.Steps, res.StepReport)
	}
	report.Elapsed = time.Since(r.began)
	err = r.verdict(ctx, report, failures)
	end := Event{Kind: RunFinished, Elapsed: report.Elapsed}
	if err != nil {
		end.Err = err.Error()
	}
	r.emit(end)
	return err
}

// verdict is the run's error: its failures, and its interruption unless every
// step was done before that reached anything.
func (r *run) verdict(ctx context.Context, report *Report, failures []error) error {
	done := true
	for _, s := range report.Steps {
		done = done && (s.Outcome == Ran || s.Outcome == Reused || r.seals.behind[r.graph.find(s.Name)] != nil)
	}
	if late := r.cutShort(ctx, report); late != nil && !done {
		failures = append(failures, late)
	} else if err := ctx.Err(); err != nil && !done {
		// The cause tells who cancelled; where it is the error itself it adds nothing.
		if cause := context.Cause(ctx); !errors.Is(cause, err) {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
		failures = append(failures, fmt.Errorf("%w: %w", ErrInterrupted, err))
	}
	if len(failures) == 1 {
		return failures[0]
	}
	return errors.Join(failures...)
}

// skip reports a step that was not begun, and why.
func (r *run) skip(ctx context.Context, n *node) result {
	res := result{node: n, StepReport: StepReport{Name: n.name, Outcome: Skipped, Reason: "another step failed"}}
	if ctx.Err() != nil {
		res.Reason = "the run was interrupted"
	}
	r.emit(Event{Kind: StepSkipped, Step: n.name, Message: res.Reason})
	return res
}

// emit hands an event to the observer.
func (r *run) emit(e Event) {
	if r.opt.Observe == nil {
		return
	}
	r.observing.Lock()
	defer r.observing.Unlock()
	e.Time, e.Run = time.Now(), r.id
	r.opt.Observe(e)
}

// record is what the journal knows about a step; the zero Record if nothing.
func (r *run) record(n *node) Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot.Steps[n.name]
}

// save writes one step's record, whatever became of the run's context. The
// snapshot in memory changes only if the one in the journal did.
func (r *run) save(ctx context.Context, n *node, rec Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveWithin)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	change := Snapshot{Format: Format, Graph: r.graph.name, Run: r.id, Updated: time.Now(),
		Steps: map[string]Record{n.name: rec}}
	var err error
	if appender, ok := r.journal.(Appender); ok {
		err = appender.Append(ctx, change)
	} else {
		whole := Snapshot{Steps: maps.Clone(r.snapshot.Steps)} // the journal may keep it
		whole.apply(change)
		err = r.journal.Save(ctx, whole)
	}
	if err != nil {
		return fmt.Errorf("save the journal: %w", err)
	}
	r.snapshot.apply(change)
	return nil
}

// finish makes a step's output known to the steps that depend on it.
func (r *run) finish(n *node, output json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outputs[n] = output
}

func (r *run) output(n *node) json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outputs[n]
}
