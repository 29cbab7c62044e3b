package flow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

func TestDataFlows(t *testing.T) {
	type numbers struct{ All []int }
	number := func(n int) func(context.Context, flow.Say) (int, error) {
		return func(context.Context, flow.Say) (int, error) { return n, nil }
	}
	g := flow.New("test")
	a, b := flow.Add(g, "a", number(1)), flow.Add(g, "b", number(2))
	c, d := flow.Add(g, "c", number(3)), flow.Add(g, "d", number(4))
	two := flow.Add2(g, "two", func(_ context.Context, _ flow.Say, a, b int) (string, error) {
		return fmt.Sprint(a, b), nil
	}, a, b)
	three := flow.Add3(g, "three", func(_ context.Context, _ flow.Say, s string, b, c int) (string, error) {
		return fmt.Sprint(s, "/", b, c), nil
	}, two, b, c)
	four := flow.Add4(g, "four", func(_ context.Context, _ flow.Say, s string, a, b, d int) (numbers, error) {
		if s != "1 2/2 3" {
			return numbers{}, fmt.Errorf("got %q", s)
		}
		return numbers{All: []int{a, b, d}}, nil
	}, three, a, b, d)

	j := flow.Memory()
	mustRun(t, g, flow.Options{Journal: j})
	got, ok, err := flow.Restore(t.Context(), j, four)
	if err != nil || !ok || fmt.Sprint(got.All) != "[1 2 4]" {
		t.Errorf("restored %v, %v, %v", got, ok, err)
	}
}

// Every dependent gets a copy: one step's scribbling reaches no other.
func TestOutputsAreCopies(t *testing.T) {
	g := flow.New("test")
	list := flow.Add(g, "list", func(context.Context, flow.Say) ([]string, error) { return []string{"clean"}, nil })
	scribble := flow.Add1(g, "scribble", func(_ context.Context, _ flow.Say, l []string) (int, error) {
		l[0] = "dirty"
		return 0, nil
	}, list)
	flow.Add1(g, "read", func(_ context.Context, _ flow.Say, l []string) (int, error) {
		if l[0] != "clean" {
			return 0, fmt.Errorf("the list is %s", l[0])
		}
		return 0, nil
	}, list).After(scribble)
	mustRun(t, g, flow.Options{})
}

func TestStepsThatShareNothingOverlap(t *testing.T) {
	const n = 8
	var waiting sync.WaitGroup
	waiting.Add(n)
	all := make(chan struct{})
	go func() { waiting.Wait(); close(all) }()
	g := flow.New("test")
	for i := range n {
		flow.Add(g, fmt.Sprintf("s%d", i), func(context.Context, flow.Say) (int, error) {
			waiting.Done()
			select {
			case <-all: // only once all of them are here
				return i, nil
			case <-time.After(enough):
				return 0, errors.New("the others never came")
			}
		}).Deadline(2 * enough)
	}
	mustRun(t, g, flow.Options{})
}

func TestParallelBounds(t *testing.T) {
	for _, bound := range []int{1, 2} {
		var now, most atomic.Int32
		g := flow.New("test")
		for i := range 12 {
			flow.Add(g, fmt.Sprintf("s%d", i), func(context.Context, flow.Say) (int, error) {
				here := now.Add(1)
				defer now.Add(-1)
				for seen := most.Load(); here > seen && !most.CompareAndSwap(seen, here); seen = most.Load() {
				}
				runtime.Gosched()
				return 0, nil
			})
		}
		mustRun(t, g, flow.Options{Parallel: bound})
		if got := int(most.Load()); got > bound {
			t.Errorf("%d steps ran at once, with at most %d allowed", got, bound)
		}
	}
}

func TestOrder(t *testing.T) {
	var l ledger
	g := flow.New("test")
	last := flow.Add(g, "last", l.make("last"))
	first := flow.Add(g, "first", l.make("first"))
	mid := flow.Add1(g, "mid", l.grow("mid"), first)
	last.After(mid)
	mustRun(t, g, flow.Options{})
	wantLines(t, l.take(), "first", "mid", "last")
}

func TestTargetsBringWhatTheyHangOn(t *testing.T) {
	var l ledger
	g := flow.New("test")
	a := flow.Add(g, "a", l.make("a"))
	o := flow.Add(g, "o", l.make("o"))
	flow.Add1(g, "b", l.grow("b"), a).After(o)
	flow.Add1(g, "c", l.grow("c"), a)
	report := mustRun(t, g, flow.Options{Targets: []string{"b"}})
	wantLines(t, l.sorted(), "a", "b", "o")
	if len(report.Steps) != 3 {
		t.Errorf("the report has %d steps, want the 3 wanted ones", len(report.Steps))
	}
}

func TestAFailureLetsRunningStepsFinishAndStartsNothing(t *testing.T) {
	var l ledger
	running, failed := make(chan struct{}), make(chan struct{})
	boom := errors.New("boom")
	g := flow.New("test")
	bad := flow.Add(g, "bad", func(context.Context, flow.Say) (thing, error) {
		<-running // a failure before that would keep the step slow from starting
		return thing{}, boom
	})
	slow := flow.Add(g, "slow", func(ctx context.Context, _ flow.Say) (thing, error) {
		close(running)
		select {
		case <-failed:
		case <-time.After(enough):
			return thing{}, errors.New("the failure was never seen")
		}
		if ctx.Err() != nil {
			return thing{}, ctx.Err() // would be a cancelled step
		}
		l.add("slow")
		return thing{}, nil
	})
	flow.Add1(g, "after-bad", l.grow("after-bad"), bad)
	flow.Add1(g, "after-slow", l.grow("after-slow"), slow)

	report, err := g.Run(t.Context(), flow.Options{Observe: func(e flow.Event) {
		if e.Kind == flow.StepFailed {
			close(failed)
		}
	}})
	e := errorAs[*flow.StepError](t, err)
	if e.Step != "bad" || e.Attempt != 1 || !errors.Is(err, boom) {
		t.Errorf("error is %+v", e)
	}
	if errors.Is(err, flow.ErrInterrupted) {
		t.Error("a failure is not an interruption")
	}
	wantLines(t, l.take(), "slow")
	wantOutcome(t, report, "bad", flow.Failed)
	wantOutcome(t, report, "slow", flow.Ran)
	wantOutcome(t, report, "after-bad", flow.Skipped)
	wantOutcome(t, report, "after-slow", flow.Skipped)
}

// Verifying is not running: what turns out to be gone only after another step
// has failed does not start any more.
func TestAFailureDuringVerifyKeepsTheStepFromStarting(t *testing.T) {
	var l ledger
	j, asked, failed := flow.Memory(), make(chan struct{}), make(chan struct{})
	fail := false
	g := flow.New("test")
	flow.Add(g, "gone", l.make("gone")).Verify(func(context.Context, thing) flow.Verdict {
		close(asked)
		<-failed
		return flow.Gone("not there")
	})
	flow.Add(g, "bad", func(context.Context, flow.Say) (thing, error) {
		if !fail {
			return thing{}, nil
		}
		<-asked
		return thing{}, errors.New("no")
	}).Verify(func(context.Context, thing) flow.Verdict { return flow.Gone("neither") })
	mustRun(t, g, flow.Options{Journal: j})
	l.take()
	fail = true
	report, err := g.Run(t.Context(), flow.Options{Journal: j, Observe: func(e flow.Event) {
		if e.Kind == flow.StepFailed {
			close(failed)
		}
	}})
	errorAs[*flow.StepError](t, err)
	wantLines(t, l.take())
	wantOutcome(t, report, "gone", flow.Skipped)
	if s := mustLoad(t, j); s.Steps["gone"].State != flow.StateDone {
		t.Errorf("record is %+v", s.Steps["gone"])
	}
}

func TestAttemptsAreCountedUntilDone(t *testing.T) {
	j, tries := flow.Memory(), 0
	g := flow.New("test")
	flow.Add(g, "a", func(context.Context, flow.Say) (int, error) {
		if tries++; tries < 3 {
			return 0, errors.New("not yet")
		}
		return tries, nil
	})
	for want := 1; want <= 2; want++ {
		_, err := g.Run(t.Context(), flow.Options{Journal: j})
		if e := errorAs[*flow.StepError](t, err); e.Attempt != want {
			t.Errorf("attempt %d, want %d", e.Attempt, want)
		}
	}
	mustRun(t, g, flow.Options{Journal: j})
	s, err := j.Load(t.Context())
	if err != nil || s.Steps["a"].Attempt != 3 || s.Steps["a"].Error != "" {
		t.Errorf("record is %+v, %v", s.Steps["a"], err)
	}
}

func TestDeadlineSaysWhatWasLastSeen(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, "wait-cp", func(ctx context.Context, say flow.Say) (int, error) {
		say("1 of 3 servers exist")
		say("2 of 3 servers exist; server type %s is out of stock", "cx33")
		<-ctx.Done()
		return 0, ctx.Err()
	}).Deadline(5 * time.Millisecond)
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
	flow.Add(g, "a", func(ctx context.Context, _ flow.Say) (int, error) {
		<-ctx.Done()
		return 0, fmt.Errorf("list servers: %w", ctx.Err())
	}).Deadline(time.Millisecond)
	_, err := g.Run(t.Context(), flow.Options{})
	if !strings.Contains(err.Error(), "list servers") || !strings.Contains(err.Error(), "within its deadline of 1ms") {
		t.Errorf("error is %q", err)
	}
}

// A failure that has nothing to do with the deadline does not speak of it.
func TestFailureBeforeTheDeadline(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, "a", func(context.Context, flow.Say) (int, error) {
		return 0, fmt.Errorf("an inner wait: %w", context.DeadlineExceeded)
	}).Deadline(time.Hour)
	_, err := g.Run(t.Context(), flow.Options{})
	var late *flow.DeadlineError
	if errors.As(err, &late) {
		t.Errorf("error is %q", err)
	}
}

func TestPanicsBecomeErrors(t *testing.T) {
	j := flow.Memory()
	cause := errors.New("index out of reach")
	g := flow.New("test")
	flow.Add(g, "a", func(context.Context, flow.Say) (int, error) { panic(cause) })
	_, err := g.Run(t.Context(), flow.Options{Journal: j})
	e := errorAs[*flow.PanicError](t, err)
	if !errors.Is(err, cause) || !strings.Contains(string(e.Stack), "run_test.go") {
		t.Errorf("error is %v with stack %s", err, e.Stack)
	}
	if strings.Contains(err.Error(), "goroutine") {
		t.Errorf("the stack is in the message %q", err)
	}
	if s, _ := j.Load(t.Context()); s.Steps["a"].State != flow.StateFailed {
		t.Errorf("record is %+v", s.Steps["a"])
	}
}

func TestGoexitBecomesAnError(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, "a", func(context.Context, flow.Say) (int, error) { runtime.Goexit(); return 0, nil })
	_, err := g.Run(t.Context(), flow.Options{})
	errorAs[*flow.StepError](t, err)
}

func TestOutputThatDoesNotSurviveJSON(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, "a", func(context.Context, flow.Say) (any, error) { return 1 << 60, nil }) // comes back as a rounded float
	_, err := g.Run(t.Context(), flow.Options{})
	if err == nil || !strings.Contains(err.Error(), "its output cannot be kept in the journal") {
		t.Errorf("error is %v", err)
	}
}

func TestCancellationInterrupts(t *testing.T) {
	j, begun := flow.Memory(), make(chan struct{})
	g := flow.New("test")
	a := flow.Add(g, "a", func(ctx context.Context, say flow.Say) (int, error) {
		say("waiting for etcd")
		close(begun)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	flow.Add1(g, "b", func(_ context.Context, _ flow.Say, n int) (int, error) { return n, nil }, a)
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
	flow.Add(g, "deaf", func(_ context.Context, say flow.Say) (int, error) {
		close(begun)
		<-release
		say("from the grave")
		close(spoken)
		return 1, nil
	})
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
	flow.Add(g, "deaf", func(context.Context, flow.Say) (int, error) {
		<-release
		return 1, nil
	}).Deadline(time.Millisecond)
	_, err := g.Run(t.Context(), flow.Options{Grace: time.Millisecond})
	errorAs[*flow.DeadlineError](t, err)
}

// A step that was done before the cancellation reached it is done.
func TestCancellationAfterTheWorkCountsAsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := flow.New("test")
	flow.Add(g, "a", func(context.Context, flow.Say) (int, error) { cancel(); return 1, nil })
	report, err := g.Run(ctx, flow.Options{Journal: flow.Folder(t.TempDir())})
	if err != nil {
		t.Errorf("everything is done, but: %v", err)
	}
	wantOutcome(t, report, "a", flow.Ran)
}

func TestEvents(t *testing.T) {
	var all events
	j := flow.Memory()
	g := flow.New("test")
	flow.Add(g, "a", func(_ context.Context, say flow.Say) (int, error) {
		say("100%")
		say("100%")
		say("done %d", 1)
		return 0, nil
	}).Verify(func(context.Context, int) flow.Verdict { return flow.Holds() })
	mustRun(t, g, flow.Options{Journal: j, Observe: all.observe})
	want := []flow.EventKind{flow.StepStarted, flow.StepProgress, flow.StepProgress, flow.StepDone}
	if got := all.of("a"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events are %v, want %v", got, want)
	}
	if e := all.all[2]; e.Message != "100%" || e.Attempt != 1 || e.Run == "" || e.Time.IsZero() {
		t.Errorf("event is %+v", e)
	}
	if first, last := all.all[0], all.all[len(all.all)-1]; first.Kind != flow.RunStarted || last.Kind != flow.RunFinished {
		t.Errorf("the run goes from %s to %s", first.Kind, last.Kind)
	}
	all = events{}
	mustRun(t, g, flow.Options{Journal: j, Observe: all.observe})
	want = []flow.EventKind{flow.StepVerifying, flow.StepReused}
	if got := all.of("a"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events are %v, want %v", got, want)
	}
}

func TestAStepYieldsOnlyToWhatIsWanted(t *testing.T) {
	var l ledger
	graph := func() *flow.Graph {
		g := flow.New("yielding")
		// Added first, so that only the order between them can put it last.
		late := flow.Add(g, "late", l.make("late"))
		early := flow.Add(g, "early", l.make("early"))
		late.OrderAfter(early)
		return g
	}
	mustRun(t, graph(), flow.Options{Targets: []string{"late"}})
	wantLines(t, l.take(), "late")
	mustRun(t, graph(), flow.Options{Targets: []string{"late", "early"}})
	wantLines(t, l.take(), "early", "late")
}
