package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ensure reuses a step's record or runs the step. All that it depends on is done.
func (r *run) ensure(ctx context.Context, n *node) result {
	if by := r.seals.behind[n]; by != nil {
		return r.skipSealed(n, by)
	}
	began := time.Now()
	res := result{node: n, StepReport: StepReport{Name: n.name}}
	end := func(outcome Outcome, reason string, err error) result {
		res.Outcome, res.Reason, res.err, res.Elapsed = outcome, reason, err, time.Since(began)
		return res
	}

	rec := r.record(n)
	k, err := n.key(func(m *node) string { return digest(r.output(m)) })
	why := ""
	if err == nil {
		why, err = r.rerunReason(ctx, n, rec, k)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		res = end(Interrupted, "while it was verified", err)
		r.emit(Event{Kind: StepInterrupted, Step: n.name, Message: res.Reason, Elapsed: res.Elapsed})
		return res
	case err != nil:
		r.stop.Store(true)
		res = end(Failed, err.Error(), err)
		r.emit(Event{Kind: StepFailed, Step: n.name, Elapsed: res.Elapsed, Err: res.Reason})
		return res
	case why == "":
		r.finish(n, mustCanonical(rec.Output))
		res = end(Reused, "", nil)
		r.emit(Event{Kind: StepReused, Step: n.name, Elapsed: res.Elapsed})
		return res
	case r.stop.Load() || ctx.Err() != nil:
		// Found out too late to begin: something else failed meanwhile.
		res = r.skip(ctx, n)
		res.err = errors.New(res.Reason)
		return res
	}
	outcome, reason, err := r.attempt(ctx, n, rec.begin(k, r.id, began), why)
	return end(outcome, reason, err)
}

// mustCanonical is for an output that was decoded before, which parsed it.
func mustCanonical(raw json.RawMessage) json.RawMessage {
	c, err := canonical(raw)
	if err != nil {
		return raw
	}
	return c
}

// rerunReason says why a step has to run; "" when its record holds. An error says
// that this cannot be known, or that it must not run.
func (r *run) rerunReason(ctx context.Context, n *node, rec Record, k key) (string, error) {
	passed := n.sealed && rec.State == StateDone
	refuse := func(reason string) (string, error) {
		if passed {
			return "", &SealedError{Step: n.name, By: n.name, Reason: reason}
		}
		return reason, nil
	}
	if rec.State != StateDone {
		return unfinished(rec.State), nil
	}
	// A passed point of no return is not run again because its configuration has changed since.
	if rec.Hash != k.hash && !passed {
		return "changed: " + joined(named(k.changes(rec))), nil
	}
	output, err := n.decode(rec.Output)
	if passed {
		output, err = ofAnyRelease(output, err)
	}
	if err != nil {
		return refuse(fmt.Sprintf("its recorded output does not restore: %v", err))
	}
	if n.verify == nil {
		return "", nil
	}
	switch v := r.verify(ctx, n, output); v.Answer() {
	case AnswerHolds:
		return "", nil
	case AnswerGone:
		return refuse("gone: " + v.Reason())
	default:
		return "", &UnverifiableError{Step: n.name, Err: v.Err()}
	}
}

// unfinished says why a step that is not done has to run.
func unfinished(s State) string {
	switch s {
	case StateStarted:
		return "its last run was killed while it was running"
	case StateFailed:
		return "it failed last time"
	case StateInterrupted:
		return "it was interrupted"
	default:
		return "it has not run yet"
	}
}

// verify asks a step's Verify, and again where what kept it from answering may pass: one refused connection, while an
// API server restarts, is no reason to stop a run.
func (r *run) verify(ctx context.Context, n *node, output any) Verdict {
	ctx, cancel := context.WithTimeoutCause(ctx, VerifyWithin, errNoAnswer)
	defer cancel()
	r.emit(Event{Kind: StepVerifying, Step: n.name})
	for pause := verifyAgainAfter; ; pause *= 2 {
		v := ask(ctx, n, output, r.opt.Grace)
		if v.Answer() != AnswerUnknown || pause > verifyAgainAtMost || ctx.Err() != nil || r.opt.Passing == nil ||
			!r.opt.Passing(v.Err()) {
			return v
		}
		r.emit(Event{Kind: StepProgress, Step: n.name, Message: "verifying it again: " + v.Reason()})
		select {
		case <-ctx.Done():
			return v
		case <-time.After(pause):
		}
	}
}

var errNoAnswer = fmt.Errorf("no answer within %s", VerifyWithin)

// ask calls a step's Verify and turns whatever goes wrong into "could not ask".
func ask(ctx context.Context, n *node, output any, grace time.Duration) Verdict {
	ctx, cancel := context.WithTimeoutCause(ctx, VerifyWithin, errNoAnswer)
	defer cancel()
	v, err := call(ctx, grace, func() (Verdict, error) { return n.verify(ctx, output), nil })
	if err != nil {
		return Unknown(err)
	}
	return v
}

// attempt runs a step whose record says that it starts.
func (r *run) attempt(ctx context.Context, n *node, rec Record, why string) (Outcome, string, error) {
	fail := func(err error) (Outcome, string, error) {
		r.stop.Store(true)
		err = &StepError{Step: n.name, Attempt: rec.Attempt, Elapsed: time.Since(rec.Started), Err: err}
		r.emit(Event{Kind: StepFailed, Step: n.name, Attempt: rec.Attempt, Elapsed: time.Since(rec.Started),
			Err: err.Error()})
		return Failed, err.Error(), err
	}
	inputs, err := r.inputs(n)
	if err != nil {
		return fail(err)
	}
	// Before the work: after a crash the journal must tell an interrupted step from one that never began.
	if err := r.save(ctx, n, rec); err != nil {
		return fail(fmt.Errorf("not begun: %w", err))
	}
	r.emit(Event{Kind: StepStarted, Step: n.name, Attempt: rec.Attempt, Message: why})

	output, said, err := r.work(ctx, n, rec.Attempt, inputs)
	rec.Ended, rec.Said = time.Now(), said
	elapsed := rec.Ended.Sub(rec.Started)
	switch {
	case err == nil:
		rec.State, rec.Output, rec.Made = StateDone, output, nil
		if err := r.save(ctx, n, rec); err != nil {
			return fail(fmt.Errorf("its work is done but not recorded, the next run will find it: %w", err))
		}
		r.finish(n, output)
		r.emit(Event{Kind: StepDone, Step: n.name, Attempt: rec.Attempt, Elapsed: elapsed, Message: said})
		return Ran, why, nil
	case ctx.Err() != nil:
		rec.State = StateInterrupted
		err = errors.Join(fmt.Errorf("step %s: %w", n.name, err), r.save(ctx, n, rec))
		r.emit(Event{Kind: StepInterrupted, Step: n.name, Attempt: rec.Attempt, Elapsed: elapsed, Message: said})
		return Interrupted, said, err
	default:
		rec.State, rec.Error = StateFailed, err.Error()
		return fail(errors.Join(err, r.save(ctx, n, rec)))
	}
}

// inputs decodes the outputs that a step takes, a copy for each taker.
func (r *run) inputs(n *node) ([]any, error) {
	inputs := make([]any, len(n.inputs))
	for i, in := range n.inputs {
		output := r.output(in)
		if len(output) == 0 { // no step that has run is without: null is an output
			return nil, fmt.Errorf("it needs the output of %s, of which the journal has no record; %s lies before a point of "+
				"no return that was passed, and does not run again", in.name, in.name)
		}
		v, err := ofAnyRelease(in.decode(output))
		if err != nil {
			return nil, fmt.Errorf("it needs the output of %s, which does not restore: %w", in.name, err)
		}
		inputs[i] = v
	}
	return inputs, nil
}

// work calls the step's function under its deadline, and returns its output as
// canonical JSON and the last thing it said.
func (r *run) work(ctx context.Context, n *node, attempt int, inputs []any) (json.RawMessage, string, error) {
	late := &DeadlineError{Step: n.name, Deadline: n.deadline}
	if n.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, n.deadline, late)
		defer cancel()
	}
	out := &progress{tell: func(line string) {
		late.say(line)
		r.emit(Event{Kind: StepProgress, Step: n.name, Attempt: attempt, Message: line})
	}}
	ctx = context.WithValue(ctx, stepName{}, n.name)
	v, err := call(ctx, r.opt.Grace, func() (any, error) { return n.do(ctx, out.say, inputs) })
	said := out.close()
	if err != nil {
		if context.Cause(ctx) == error(late) {
			err = explain(late, err)
		}
		return nil, said, err
	}
	output, err := json.Marshal(v)
	if err == nil {
		output, err = canonical(output)
	}
	if err == nil {
		_, err = n.decode(output)
	}
	if err != nil {
		return nil, said, fmt.Errorf("its output cannot be kept in the journal: %w", err)
	}
	return output, said, nil
}

type stepName struct{}

// StepName is the step that a context was given to, for those who log or count
// what is done with it; empty for any other context. A step's work must not
// depend on it.
func StepName(ctx context.Context) string {
	name, _ := ctx.Value(stepName{}).(string)
	return name
}

// explain puts the deadline before the error with which a step met it, unless
// that says nothing more than that it was late.
func explain(late *DeadlineError, err error) error {
	var same *DeadlineError
	if errors.As(err, &same) {
		return err
	}
	if err.Error() == context.DeadlineExceeded.Error() {
		return late
	}
	return fmt.Errorf("%w: %w", late, err)
}

// progress is a step's Say. After the step's end it is silent, so that nothing
// left behind reports progress for a step that has ended.
type progress struct {
	tell func(line string)
	mu   sync.Mutex
	last string
	over bool
}

func (v *progress) say(format string, args ...any) {
	line := sprintf(format, args)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over || line == v.last {
		return
	}
	v.last = line
	v.tell(line)
}

func (v *progress) close() (last string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	return v.last
}

// call runs f and returns when it does, or a while after ctx is over if it does
// not follow. A panic becomes an error.
func call[T any](ctx context.Context, grace time.Duration, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1) // a late one is dropped
	go func() {
		a := answer{err: errors.New("it ended without returning")} // runtime.Goexit
		defer func() {
			if p := recover(); p != nil {
				a = answer{err: &PanicError{Value: p, Stack: debug.Stack()}}
			}
			answers <- a
		}()
		v, err := f()
		a = answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-patience.C:
		var zero T
		return zero, fmt.Errorf("it did not stop within %s and was left behind: %w", grace, context.Cause(ctx))
	}
}
