package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

func TestDeadlineSaysWhatWasLastSeen(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "wait-cp",
		Run: flow.Do(func(ctx context.Context, say flow.Say) (int, error) {
			say("1 of 3 servers exist")
			say("2 of 3 servers exist; server type %s is out of stock", "cx33")
			<-ctx.Done()
			return 0, ctx.Err()
		}),
		Deadline: 5 * time.Millisecond,
	})
	_, err := g.Run(t.Context(), flow.Options{})
	e := errorAs[*flow.DeadlineError](t, err)
	want := "wait-cp is not done within its deadline of 5ms; last seen: 2 of 3 servers exist; server type cx33 is " +
		"out of stock"
	if e.Error() != want {
		t.Errorf("error is %q, want %q", e, want)
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, flow.ErrInterrupted) {
		t.Errorf("%v should be a passed deadline, and no interruption", err)
	}
	errorAs[*flow.StepError](t, err)
}

func TestDeadlineKeepsTheStepsOwnWords(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run: flow.Do(func(ctx context.Context, _ flow.Say) (int, error) {
			<-ctx.Done()
			return 0, fmt.Errorf("list servers: %w", ctx.Err())
		}),
		Deadline: time.Millisecond,
	})
	_, err := g.Run(t.Context(), flow.Options{})
	if !strings.Contains(err.Error(), "list servers") || !strings.Contains(err.Error(), "within its deadline of 1ms") {
		t.Errorf("error is %q", err)
	}
}

// A failure that has nothing to do with the deadline does not speak of it.
func TestFailureBeforeTheDeadline(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run: flow.Do(func(context.Context, flow.Say) (int, error) {
			return 0, fmt.Errorf("an inner wait: %w", context.DeadlineExceeded)
		}),
		Deadline: time.Hour,
	})
	_, err := g.Run(t.Context(), flow.Options{})
	var late *flow.DeadlineError
	if errors.As(err, &late) {
		t.Errorf("error is %q", err)
	}
}

func TestCancellationInterrupts(t *testing.T) {
	j, begun := flow.Memory(), make(chan struct{})
	g := flow.New("test")
	a := flow.Add(g, flow.Task[int]{Name: "a", Run: flow.Do(func(ctx context.Context, say flow.Say) (int, error) {
		say("waiting for etcd")
		close(begun)
		<-ctx.Done()
		return 0, ctx.Err()
	})})
	flow.Add(g, flow.Task[int]{
		Name: "b",
		Run:  flow.With1(func(_ context.Context, _ flow.Say, n int) (int, error) { return n, nil }, a),
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(errors.New("got SIGINT")) }()
	report, err := g.Run(ctx, flow.Options{Journal: j})
	if !errors.Is(err, flow.ErrInterrupted) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "got SIGINT") {
		t.Errorf("error is %v", err)
	}
	var failed *flow.StepError
	if errors.As(err, &failed) {
		t.Errorf("an interruption is not a failure: %v", err)
	}
	wantOutcome(t, report, "a", flow.Interrupted)
	wantOutcome(t, report, "b", flow.Skipped)
	s, _ := j.Load(t.Context())
	if rec := s.Steps["a"]; rec.State != flow.StateInterrupted || rec.Said != "waiting for etcd" || rec.Error != "" {
		t.Errorf("record is %+v", rec)
	}
	if _, ok := s.Steps["b"]; ok {
		t.Error("b was never begun")
	}
}

// A step without a context of its own (kind's library) must not hold up the end.
func TestCancellationLeavesDeafStepsBehind(t *testing.T) {
	begun, release, spoken := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var all events
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{Name: "deaf", Run: flow.Do(func(_ context.Context, say flow.Say) (int, error) {
		close(begun)
		<-release
		say("from the grave")
		close(spoken)
		return 1, nil
	})})
	j := flow.Memory()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	start := time.Now()
	_, err := g.Run(ctx, flow.Options{Journal: j, Grace: 10 * time.Millisecond, Observe: all.observe})
	if took := time.Since(start); took > enough/2 {
		t.Errorf("the run ended only after %s", took)
	}
	if !errors.Is(err, flow.ErrInterrupted) {
		t.Errorf("error is %v", err)
	}
	if s, _ := j.Load(t.Context()); s.Steps["deaf"].State != flow.StateInterrupted {
		t.Errorf("record is %+v", s.Steps["deaf"])
	}
	close(release)
	eventually(t, "the last words of the step left behind", spoken)
	for _, kind := range all.of("deaf") {
		if kind == flow.StepProgress {
			t.Error("a step that is over was heard")
		}
	}
}

func TestDeadlineLeavesDeafStepsBehind(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "deaf",
		Run: flow.Do(func(context.Context, flow.Say) (int, error) {
			<-release
			return 1, nil
		}),
		Deadline: time.Millisecond,
	})
	_, err := g.Run(t.Context(), flow.Options{Grace: time.Millisecond})
	errorAs[*flow.DeadlineError](t, err)
}

// A step that was done before the cancellation reached it is done.
func TestCancellationAfterTheWorkCountsAsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (int, error) { cancel(); return 1, nil }),
	})
	report, err := g.Run(ctx, flow.Options{Journal: flow.Folder(t.TempDir())})
	if err != nil {
		t.Errorf("everything is done, but: %v", err)
	}
	wantOutcome(t, report, "a", flow.Ran)
}
