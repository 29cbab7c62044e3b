package flow_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// enough is how long a test waits for what should take microseconds.
const enough = 10 * time.Second

// thing is the output of the steps in these tests.
type thing struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// ledger writes down what steps did, in order.
type ledger struct {
	mu    sync.Mutex
	lines []string
}

func (l *ledger) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// take gives the lines since the last take, sorted if order does not matter.
func (l *ledger) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *ledger) sorted() []string {
	lines := l.take()
	slices.Sort(lines)
	return lines
}

// make returns a step function that notes its name and makes a thing.
func (l *ledger) make(name string) func(context.Context, flow.Say) (thing, error) {
	return func(context.Context, flow.Say) (thing, error) {
		l.add(name)
		return thing{Name: name}, nil
	}
}

// task is a step that notes its name and makes a thing.
func (l *ledger) task(name string) flow.Task[thing] {
	return flow.Task[thing]{Name: name, Run: flow.Do(l.make(name))}
}

// grow returns a step function that notes its name and makes a bigger thing.
func (l *ledger) grow(name string) func(context.Context, flow.Say, thing) (thing, error) {
	return func(_ context.Context, _ flow.Say, in thing) (thing, error) {
		l.add(name)
		return thing{Name: name, Size: in.Size + 1}, nil
	}
}

func mustRun(t *testing.T, g *flow.Graph, opt flow.Options) *flow.Report {
	t.Helper()
	report, err := g.Run(t.Context(), opt)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return report
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func wantOutcome(t *testing.T, r *flow.Report, step string, want flow.Outcome) {
	t.Helper()
	s, ok := r.Step(step)
	if !ok {
		t.Fatalf("step %s is not in the report %+v", step, r)
	}
	if s.Outcome != want {
		t.Fatalf("step %s: outcome %s (%s), want %s", step, s.Outcome, s.Reason, want)
	}
}

func errorAs[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("error is %v (%T), want a %T", err, err, e)
	}
	return e
}

// eventually waits for a signal that a test cannot continue without.
func eventually(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(enough):
		t.Fatalf("%s did not happen within %s", what, enough)
	}
}

// events collects a run's events.
type events struct {
	mu  sync.Mutex
	all []flow.Event
}

func (e *events) observe(event flow.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// of lists the kinds of a step's events.
func (e *events) of(step string) []flow.EventKind {
	e.mu.Lock()
	defer e.mu.Unlock()
	var kinds []flow.EventKind
	for _, event := range e.all {
		if event.Step == step {
			kinds = append(kinds, event.Kind)
		}
	}
	return kinds
}
