package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// chain is a → b → c, with d after c, over inputs that a test changes.
type chain struct {
	ledger
	spec    map[string]any
	size    int // of a's output
	verdict map[string]flow.Verdict
	asked   ledger
}

func (c *chain) graph() *flow.Graph {
	g := flow.New("chain")
	verify := func(name string) func(context.Context, thing) flow.Verdict {
		return func(_ context.Context, out thing) flow.Verdict {
			c.asked.add(name)
			if out.Name != name {
				return flow.Unknown(fmt.Errorf("asked about %q", out.Name))
			}
			if v, ok := c.verdict[name]; ok {
				return v
			}
			return flow.Holds()
		}
	}
	a := flow.Add(g, flow.Task[thing]{
		Name: "a",
		Run: flow.Do(func(context.Context, flow.Say) (thing, error) {
			c.add("a")
			return thing{Name: "a", Size: c.size}, nil
		}),
		Spec:   c.spec["a"],
		Verify: verify("a"),
	})
	b := flow.Add(g, flow.Task[thing]{
		Name:   "b",
		Run:    flow.With1(c.grow("b"), a),
		Spec:   c.spec["b"],
		Verify: verify("b"),
	})
	last := flow.Add(g, flow.Task[thing]{
		Name:   "c",
		Run:    flow.With1(c.grow("c"), b),
		Spec:   c.spec["c"],
		Verify: verify("c"),
	})
	flow.Add(g, flow.Task[thing]{Name: "d", Run: flow.Do(c.make("d")), After: flow.Of(last), Verify: verify("d")})
	return g
}

func TestASecondRunReusesEverythingAndWritesNothing(t *testing.T) {
	c, j := chain{}, &countingJournal{Journal: flow.Memory()}
	mustRun(t, c.graph(), flow.Options{Journal: j})
	wantLines(t, c.take(), "a", "b", "c", "d")
	wantLines(t, c.asked.take())
	writes := j.saves
	report := mustRun(t, c.graph(), flow.Options{Journal: j})
	wantLines(t, c.take())
	wantLines(t, c.asked.take(), "a", "b", "c", "d")
	wantOutcome(t, report, "a", flow.Reused)
	if j.saves != writes {
		t.Errorf("a run that changed nothing wrote the journal %d times", j.saves-writes)
	}
}

type countingJournal struct {
	flow.Journal
	saves int
}

func (j *countingJournal) Save(ctx context.Context, s flow.Snapshot) error {
	j.saves++
	return j.Journal.Save(ctx, s)
}

func TestAChangedSpecRunsThatStepOnly(t *testing.T) {
	c, j := chain{spec: map[string]any{"b": map[string]any{"x": map[string]int{"y": 1, "z": 1}}}}, flow.Memory()
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.take()
	c.spec["b"] = map[string]any{"x": map[string]int{"y": 2, "z": 1}}
	report := mustRun(t, c.graph(), flow.Options{Journal: j})
	wantLines(t, c.take(), "b") // its output is the same, so c has nothing to do
	if s, _ := report.Step("b"); s.Reason != "changed: spec x.y" {
		t.Errorf("the reason is %q", s.Reason)
	}
}

func TestAChangedOutputRunsWhatTakesIt(t *testing.T) {
	c, j := chain{spec: map[string]any{"a": 1}}, flow.Memory()
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.take()
	c.spec["a"], c.size = 2, 10
	report := mustRun(t, c.graph(), flow.Options{Journal: j})
	wantLines(t, c.take(), "a", "b", "c") // but not d, which is only ordered after c
	if s, _ := report.Step("b"); s.Reason != "changed: output of a" {
		t.Errorf("the reason is %q", s.Reason)
	}
	wantOutcome(t, report, "d", flow.Reused)
}

func TestAChangedOutputRunsWhatFollowsIt(t *testing.T) {
	var l ledger
	size, j := 1, flow.Memory()
	run := func() *flow.Report {
		g := flow.New("following")
		a := flow.Add(g, flow.Task[thing]{
			Name: "a",
			Run: flow.Do(func(context.Context, flow.Say) (thing, error) {
				l.add("a")
				return thing{Name: "a", Size: size}, nil
			}),
			Spec: size,
		})
		flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.Do(l.make("b")), RerunAfter: flow.Of(a)})
		return mustRun(t, g, flow.Options{Journal: j})
	}
	run()
	run()
	wantLines(t, l.take(), "a", "b")
	size = 2
	report := run()
	wantLines(t, l.take(), "a", "b")
	if s, _ := report.Step("b"); s.Reason != "changed: output of a" {
		t.Errorf("the reason is %q", s.Reason)
	}
}

func TestSpecsThatMeanTheSameAreTheSame(t *testing.T) {
	type spec struct {
		B int `json:"b"`
		A int `json:"a"`
	}
	c, j := chain{spec: map[string]any{"a": spec{2, 1}}}, flow.Memory()
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.take()
	c.spec["a"] = map[string]int{"a": 1, "b": 2}
	mustRun(t, c.graph(), flow.Options{Journal: j})
	wantLines(t, c.take())
}

func TestGoneRunsAgain(t *testing.T) {
	c, j := chain{}, flow.Memory()
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.take()
	c.verdict = map[string]flow.Verdict{"b": flow.Gone("release %s not found", "b")}
	report := mustRun(t, c.graph(), flow.Options{Journal: j})
	wantLines(t, c.take(), "b")
	if s, _ := report.Step("b"); s.Reason != "gone: release b not found" {
		t.Errorf("the reason is %q", s.Reason)
	}
}

func TestUnknownStopsTheRun(t *testing.T) {
	refused := errors.New("connection refused")
	for name, v := range map[string]flow.Verdict{"unknown": flow.Unknown(refused), "zero": {}} {
		t.Run(name, func(t *testing.T) {
			c, j := chain{}, &countingJournal{Journal: flow.Memory()}
			mustRun(t, c.graph(), flow.Options{Journal: j})
			c.take()
			c.asked.take()
			writes := j.saves
			c.verdict = map[string]flow.Verdict{"b": v, "c": flow.Gone("c too")}
			report, err := c.graph().Run(t.Context(), flow.Options{Journal: j})
			if e := errorAs[*flow.UnverifiableError](t, err); e.Step != "b" {
				t.Errorf("step is %s", e.Step)
			} else if !strings.Contains(e.Error(), "this step created nothing") { // it has nothing of the others in the run
				t.Errorf("it says %q", e)
			}
			if name == "unknown" && !errors.Is(err, refused) {
				t.Errorf("the reason is missing in %v", err)
			}
			wantLines(t, c.take()) // nothing was created again
			wantLines(t, c.asked.take(), "a", "b")
			wantOutcome(t, report, "b", flow.Failed)
			wantOutcome(t, report, "c", flow.Skipped)
			if j.saves != writes {
				t.Error("not knowing is nothing to write down")
			}
			// When Verify answers again, all is as it was.
			c.verdict = nil
			mustRun(t, c.graph(), flow.Options{Journal: j})
			wantLines(t, c.take())
		})
	}
}

func TestAPanickingVerifyIsUnknown(t *testing.T) {
	j, ran := flow.Memory(), 0
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name:   "a",
		Run:    flow.Do(func(context.Context, flow.Say) (int, error) { ran++; return 0, nil }),
		Verify: func(context.Context, int) flow.Verdict { panic("no client") },
	})
	mustRun(t, g, flow.Options{Journal: j})
	_, err := g.Run(t.Context(), flow.Options{Journal: j})
	errorAs[*flow.UnverifiableError](t, err)
	errorAs[*flow.PanicError](t, err)
	if ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
}

func TestCancellationDuringVerifyIsAnInterruption(t *testing.T) {
	j := flow.Memory()
	ctx, cancel := context.WithCancel(t.Context())
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (int, error) { return 0, nil }),
		Verify: func(ctx context.Context, _ int) flow.Verdict {
			cancel()
			<-ctx.Done()
			return flow.Unknown(ctx.Err())
		},
	})
	mustRun(t, g, flow.Options{Journal: j})
	_, err := g.Run(ctx, flow.Options{Journal: j})
	var unverifiable *flow.UnverifiableError
	if !errors.Is(err, flow.ErrInterrupted) || errors.As(err, &unverifiable) {
		t.Errorf("error is %v", err)
	}
	// What was done stays done.
	s, _ := j.Load(t.Context())
	if s.Steps["a"].State != flow.StateDone {
		t.Errorf("record is %+v", s.Steps["a"])
	}
}

// An output type that changed its fields cannot take an old output for its own.
func TestOutputOfAnotherShapeRunsAgain(t *testing.T) {
	j := flow.Memory()
	type before struct{ Name string }
	type after struct{ Name, UID string }
	old := flow.New("test")
	flow.Add(old, flow.Task[before]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (before, error) { return before{"x"}, nil }),
	})
	mustRun(t, old, flow.Options{Journal: j})
	ran := false
	g := flow.New("test")
	s := flow.Add(g, flow.Task[after]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (after, error) { ran = true; return after{"x", "u"}, nil }),
	})
	if v, ok, err := flow.Restore(t.Context(), j, s); !ok || err != nil || v != (after{Name: "x"}) {
		t.Errorf("what the older output has: %+v, %v, %v", v, ok, err)
	}
	report := mustRun(t, g, flow.Options{Journal: j})
	if r, _ := report.Step("a"); !ran || !strings.Contains(r.Reason, "does not restore: it changes on its way through "+
		"JSON in UID") {
		t.Errorf("report is %+v", r)
	}
}

func TestRestore(t *testing.T) {
	j, fail := flow.Memory(), true
	g := flow.New("test")
	a := flow.Add(g, flow.Task[thing]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (thing, error) { return thing{"a", 1}, nil }),
	})
	b := flow.Add(g, flow.Task[thing]{
		Name: "b",
		Run: flow.With1(func(_ context.Context, _ flow.Say, in thing) (thing, error) {
			if fail {
				return thing{}, errors.New("no")
			}
			return in, nil
		}, a),
	})
	if _, ok, err := flow.Restore(t.Context(), j, a); ok || err != nil {
		t.Errorf("an empty journal restored: %v, %v", ok, err)
	}
	if _, err := g.Run(t.Context(), flow.Options{Journal: j}); err == nil {
		t.Fatal("b should fail")
	}
	if v, ok, err := flow.Restore(t.Context(), j, a); !ok || err != nil || v.Size != 1 {
		t.Errorf("restored %v, %v, %v", v, ok, err)
	}
	if _, ok, err := flow.Restore(t.Context(), j, b); ok || err != nil {
		t.Errorf("a failed step restored: %v, %v", ok, err)
	}
}
