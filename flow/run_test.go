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
	number := func(name string, n int) flow.Task[int] {
		return flow.Task[int]{
			Name: name,
			Run:  flow.Do(func(context.Context, flow.Say) (int, error) { return n, nil }),
		}
	}
	g := flow.New("test")
	a, b := flow.Add(g, number("a", 1)), flow.Add(g, number("b", 2))
	c, d := flow.Add(g, number("c", 3)), flow.Add(g, number("d", 4))
	two := flow.Add(g, flow.Task[string]{
		Name: "two",
		Run: flow.With2(func(_ context.Context, _ flow.Say, a, b int) (string, error) {
			return fmt.Sprint(a, b), nil
		}, a, b),
	})
	three := flow.Add(g, flow.Task[string]{
		Name: "three",
		Run: flow.With3(func(_ context.Context, _ flow.Say, s string, b, c int) (string, error) {
			return fmt.Sprint(s, "/", b, c), nil
		}, two, b, c),
	})
	four := flow.Add(g, flow.Task[numbers]{
		Name: "four",
		Run: flow.With4(func(_ context.Context, _ flow.Say, s string, a, b, d int) (numbers, error) {
			if s != "1 2/2 3" {
				return numbers{}, fmt.Errorf("got %q", s)
			}
			return numbers{All: []int{a, b, d}}, nil
		}, three, a, b, d),
	})

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
	list := flow.Add(g, flow.Task[[]string]{
		Name: "list",
		Run:  flow.Do(func(context.Context, flow.Say) ([]string, error) { return []string{"clean"}, nil }),
	})
	scribble := flow.Add(g, flow.Task[int]{
		Name: "scribble",
		Run: flow.With1(func(_ context.Context, _ flow.Say, l []string) (int, error) {
			l[0] = "dirty"
			return 0, nil
		}, list),
	})
	flow.Add(g, flow.Task[int]{
		Name: "read",
		Run: flow.With1(func(_ context.Context, _ flow.Say, l []string) (int, error) {
			if l[0] != "clean" {
				return 0, fmt.Errorf("the list is %s", l[0])
			}
			return 0, nil
		}, list),
		After: flow.Of(scribble),
	})
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
		flow.Add(g, flow.Task[int]{
			Name: fmt.Sprintf("s%d", i),
			Run: flow.Do(func(context.Context, flow.Say) (int, error) {
				waiting.Done()
				select {
				case <-all: // only once all of them are here
					return i, nil
				case <-time.After(enough):
					return 0, errors.New("the others never came")
				}
			}),
			Deadline: 2 * enough,
		})
	}
	mustRun(t, g, flow.Options{})
}

func TestParallelBounds(t *testing.T) {
	for _, bound := range []int{1, 2} {
		var now, most atomic.Int32
		g := flow.New("test")
		for i := range 12 {
			flow.Add(g, flow.Task[int]{
				Name: fmt.Sprintf("s%d", i),
				Run: flow.Do(func(context.Context, flow.Say) (int, error) {
					here := now.Add(1)
					defer now.Add(-1)
					for seen := most.Load(); here > seen && !most.CompareAndSwap(seen, here); seen = most.Load() {
					}
					runtime.Gosched()
					return 0, nil
				}),
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
	last := flow.Add(g, l.task("last"))
	first := flow.Add(g, l.task("first"))
	mid := flow.Add(g, flow.Task[thing]{Name: "mid", Run: flow.With1(l.grow("mid"), first)})
	last.After(mid)
	mustRun(t, g, flow.Options{})
	wantLines(t, l.take(), "first", "mid", "last")
}

func TestTargetsBringWhatTheyHangOn(t *testing.T) {
	var l ledger
	g := flow.New("test")
	a := flow.Add(g, l.task("a"))
	o := flow.Add(g, l.task("o"))
	flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.With1(l.grow("b"), a), After: flow.Of(o)})
	flow.Add(g, flow.Task[thing]{Name: "c", Run: flow.With1(l.grow("c"), a)})
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
	bad := flow.Add(g, flow.Task[thing]{Name: "bad", Run: flow.Do(func(context.Context, flow.Say) (thing, error) {
		<-running // a failure before that would keep the step slow from starting
		return thing{}, boom
	})})
	slow := flow.Add(g, flow.Task[thing]{
		Name: "slow",
		Run: flow.Do(func(ctx context.Context, _ flow.Say) (thing, error) {
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
		}),
	})
	flow.Add(g, flow.Task[thing]{Name: "after-bad", Run: flow.With1(l.grow("after-bad"), bad)})
	flow.Add(g, flow.Task[thing]{Name: "after-slow", Run: flow.With1(l.grow("after-slow"), slow)})

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
	flow.Add(g, flow.Task[thing]{
		Name: "gone",
		Run:  flow.Do(l.make("gone")),
		Verify: func(context.Context, thing) flow.Verdict {
			close(asked)
			<-failed
			return flow.Gone("not there")
		},
	})
	flow.Add(g, flow.Task[thing]{
		Name: "bad",
		Run: flow.Do(func(context.Context, flow.Say) (thing, error) {
			if !fail {
				return thing{}, nil
			}
			<-asked
			return thing{}, errors.New("no")
		}),
		Verify: func(context.Context, thing) flow.Verdict { return flow.Gone("neither") },
	})
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
	flow.Add(g, flow.Task[int]{Name: "a", Run: flow.Do(func(context.Context, flow.Say) (int, error) {
		if tries++; tries < 3 {
			return 0, errors.New("not yet")
		}
		return tries, nil
	})})
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

func TestPanicsBecomeErrors(t *testing.T) {
	j := flow.Memory()
	cause := errors.New("index out of reach")
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{Name: "a", Run: flow.Do(func(context.Context, flow.Say) (int, error) { panic(cause) })})
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
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (int, error) { runtime.Goexit(); return 0, nil }),
	})
	_, err := g.Run(t.Context(), flow.Options{})
	errorAs[*flow.StepError](t, err)
}

func TestOutputThatDoesNotSurviveJSON(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, flow.Task[any]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (any, error) { return 1 << 60, nil }),
	}) // comes back as a rounded float
	_, err := g.Run(t.Context(), flow.Options{})
	if err == nil || !strings.Contains(err.Error(), "its output cannot be kept in the journal") {
		t.Errorf("error is %v", err)
	}
}

func TestEvents(t *testing.T) {
	var all events
	j := flow.Memory()
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run: flow.Do(func(_ context.Context, say flow.Say) (int, error) {
			say("100%")
			say("100%")
			say("done %d", 1)
			return 0, nil
		}),
		Verify: func(context.Context, int) flow.Verdict { return flow.Holds() },
	})
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
		late := flow.Add(g, l.task("late"))
		early := flow.Add(g, l.task("early"))
		late.OrderAfter(early)
		return g
	}
	mustRun(t, graph(), flow.Options{Targets: []string{"late"}})
	wantLines(t, l.take(), "late")
	mustRun(t, graph(), flow.Options{Targets: []string{"late", "early"}})
	wantLines(t, l.take(), "early", "late")
}
