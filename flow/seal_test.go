package flow_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// voyage is harbour → launch (sealed) → sail, and sail takes the harbour too.
type voyage struct {
	ledger
	asked   ledger
	speed   int
	verdict map[string]flow.Verdict
}

func (v *voyage) graph() *flow.Graph {
	verify := func(name string) func(context.Context, thing) flow.Verdict {
		return func(context.Context, thing) flow.Verdict {
			v.asked.add(name)
			if verdict, ok := v.verdict[name]; ok {
				return verdict
			}
			return flow.Holds()
		}
	}
	g := flow.New("voyage")
	crew := flow.Add(g, flow.Task[thing]{Name: "crew", Run: flow.Do(v.make("crew")), Verify: verify("crew")})
	harbour := flow.Add(g, flow.Task[thing]{
		Name:   "harbour",
		Run:    flow.Do(v.make("harbour")),
		Spec:   v.speed,
		Verify: verify("harbour"),
	})
	launch := flow.Add(g, flow.Task[thing]{
		Name:   "launch",
		Run:    flow.With1(v.grow("launch"), harbour),
		After:  flow.Of(crew),
		Spec:   v.speed,
		Verify: verify("launch"),
		Seal:   true,
	})
	flow.Add(g, flow.Task[thing]{
		Name: "sail",
		Run: flow.With2(func(_ context.Context, _ flow.Say, from, by thing) (thing, error) {
			v.add("sail from " + from.Name + " after " + by.Name)
			return thing{}, nil
		}, harbour, launch),
		Spec:   v.speed,
		Verify: verify("sail"),
	})
	flow.Add(g, v.task("gull"))
	return g
}

func TestBehindASealNothingIsAskedOrRun(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch"}})
	wantLines(t, v.sorted(), "crew", "harbour", "launch")

	v.speed = 7 // all changed, and the harbour is gone
	v.verdict = map[string]flow.Verdict{"harbour": flow.Gone("sold"), "crew": flow.Unknown(errors.New("ashore"))}
	report := mustRun(t, v.graph(), flow.Options{Journal: j})
	wantLines(t, v.sorted(), "gull", "sail from harbour after launch") // with the recorded output
	wantLines(t, v.asked.take(), "launch")
	wantOutcome(t, report, "crew", flow.Skipped)
	wantOutcome(t, report, "harbour", flow.Skipped)
	wantOutcome(t, report, "launch", flow.Reused)
	wantOutcome(t, report, "sail", flow.Ran)
}

func TestTargetsBehindASealAreRefused(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"harbour"}}) // before it, it is free
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch"}})
	v.take()
	for _, target := range []string{"crew", "harbour"} {
		_, err := v.graph().Run(t.Context(), flow.Options{Journal: j, Targets: []string{"gull", target}})
		if e := errorAs[*flow.SealedError](t, err); e.Step != target || e.By != "launch" {
			t.Errorf("error is %+v", e)
		}
	}
	wantLines(t, v.take())
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch", "sail"}})
	wantLines(t, v.take(), "sail from harbour after launch")
}

func TestAPassedSealIsNotRunASecondTime(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch"}})
	v.take()
	v.verdict = map[string]flow.Verdict{"launch": flow.Gone("the ship is not afloat")}
	report, err := v.graph().Run(t.Context(), flow.Options{Journal: j, Targets: []string{"sail"}})
	if e := errorAs[*flow.SealedError](t, err); e.Step != "launch" || e.By != "launch" ||
		e.Reason != "gone: the ship is not afloat" {
		t.Errorf("error is %+v", e)
	}
	wantLines(t, v.take())
	wantOutcome(t, report, "launch", flow.Failed)
	wantOutcome(t, report, "sail", flow.Skipped)

	v.verdict = map[string]flow.Verdict{"launch": {}}
	_, err = v.graph().Run(t.Context(), flow.Options{Journal: j, Targets: []string{"sail"}})
	errorAs[*flow.UnverifiableError](t, err)
	wantLines(t, v.take())
}

// A seal that failed, or whose run was killed, is not passed: what is before it counts.
func TestASealThatIsNotDoneSealsNothing(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	dying := &dyingJournal{Journal: j, at: 6} // the "done" of launch
	if _, err := v.graph().Run(t.Context(), flow.Options{Journal: dying, Targets: []string{"launch"}}); !errors.Is(err,
		errDied) {
		t.Fatalf("error is %v", err)
	}
	if s := mustLoad(t, j); s.Steps["launch"].State != flow.StateStarted {
		t.Fatalf("launch is %s", s.Steps["launch"].State)
	}
	v.take()
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch"}})
	wantLines(t, v.take(), "launch")
	wantLines(t, v.asked.sorted(), "crew", "harbour")
}

func TestAMissingOutputBehindASealIsAnError(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch"}})
	s := mustLoad(t, j)
	delete(s.Steps, "harbour")
	if err := j.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	v.take()
	_, err := v.graph().Run(t.Context(), flow.Options{Journal: j, Targets: []string{"sail"}})
	if e := errorAs[*flow.StepError](t, err); e.Step != "sail" ||
		!strings.Contains(err.Error(), "it needs the output of harbour, of which the journal has no record") {
		t.Errorf("error is %v", err)
	}
	wantLines(t, v.take())
}

func TestASealThatWasPassedWithoutARecord(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	underway := func() (bool, error) { return true, nil }
	graph := func() *flow.Graph {
		g := flow.New("voyage")
		crew := flow.Add(g, v.task("crew"))
		launch := flow.Add(g, flow.Task[thing]{
			Name:       "launch",
			Run:        flow.Do(v.make("launch")),
			After:      flow.Of(crew),
			Seal:       true,
			ResumeWhen: func() (bool, error) { return underway() },
		})
		flow.Add(g, flow.Task[thing]{Name: "sail", Run: flow.Do(v.make("sail")), After: flow.Of(launch)})
		return g
	}
	report := mustRun(t, graph(), flow.Options{Journal: j})
	wantLines(t, v.take(), "launch", "sail") // the crew stays ashore, whatever the journal lost
	wantOutcome(t, report, "crew", flow.Skipped)

	_, err := graph().Run(t.Context(), flow.Options{Journal: flow.Memory(), Targets: []string{"crew"}})
	var sealed *flow.SealedError
	if !errors.As(err, &sealed) || sealed.By != "launch" {
		t.Errorf("asked for a step before it: %v", err)
	}
	underway = func() (bool, error) { return false, nil }
	mustRun(t, graph(), flow.Options{Journal: flow.Memory()})
	wantLines(t, v.take(), "crew", "launch", "sail")

	underway = func() (bool, error) { return false, errors.New("fog") }
	if _, err := graph().Run(t.Context(), flow.Options{Journal: flow.Memory()}); err == nil || len(v.take()) > 0 {
		t.Errorf("ran without knowing how far it had come: %v", err)
	}
}

// cargo is a step that is exempt from the seal of a voyage, with what it takes.
func (v *voyage) cargo(spec int) *flow.Graph {
	g := v.graph()
	verify := func(name string) func(context.Context, thing) flow.Verdict {
		return func(context.Context, thing) flow.Verdict {
			v.asked.add(name)
			if verdict, ok := v.verdict[name]; ok {
				return verdict
			}
			return flow.Holds()
		}
	}
	quay := flow.Add(g, v.task("quay"))
	order := flow.Add(g, flow.Task[thing]{
		Name:           "order",
		Run:            flow.Do(v.make("order")),
		Verify:         verify("order"),
		ExemptFromSeal: true,
	})
	cargo := flow.Add(g, flow.Task[thing]{
		Name:           "cargo",
		Run:            flow.With1(v.grow("cargo"), order),
		After:          flow.Of(quay),
		Spec:           spec,
		Verify:         verify("cargo"),
		ExemptFromSeal: true,
	})
	clear := flow.Add(g, flow.Task[thing]{Name: "clear", Run: flow.Do(v.make("clear")), RerunAfter: flow.Of(cargo)})
	launch := flow.Add(g, flow.Task[thing]{
		Name:   "leave",
		Run:    flow.Do(v.make("leave")),
		After:  flow.Of(clear, cargo),
		Verify: verify("leave"),
		Seal:   true,
	})
	flow.Add(g, flow.Task[thing]{Name: "arrive", Run: flow.Do(v.make("arrive")), After: flow.Of(launch)})
	return g
}

func TestAnExemptStepRunsAgainAfterTheSeal(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	foreseen(t, v.cargo(1), j, "arrive", "cargo")
	wantLines(t, v.sorted(), "arrive", "cargo", "clear", "leave", "order", "quay")

	got := foreseen(t, v.cargo(1), j, "arrive", "cargo")
	wantProspects(t, got, map[string]flow.Action{
		"clear": flow.ActionSkip, "leave": flow.ActionReuse, "arrive": flow.ActionReuse,
		"order": flow.ActionReuse, "cargo": flow.ActionReuse,
	})
	wantLines(t, v.take())

	got = foreseen(t, v.cargo(2), j, "arrive", "cargo")
	if f := got["cargo"]; f.Action != flow.ActionRun || f.Why != "changed: spec" || f.Sealed != "" {
		t.Errorf("a changed spec: %+v", f)
	}
	wantLines(t, v.take(), "cargo") // and not what follows it, which precedes the seal

	v.verdict = map[string]flow.Verdict{"order": flow.Gone("lost")}
	foreseen(t, v.cargo(2), j, "cargo")
	wantLines(t, v.take(), "order")
	v.verdict = map[string]flow.Verdict{"leave": flow.Gone("adrift")}
	v.asked.take()
	got = foreseen(t, v.cargo(3), j, "cargo") // by itself it asks nothing of the seal
	wantProspects(t, got, map[string]flow.Action{"order": flow.ActionReuse, "cargo": flow.ActionRun})
	wantLines(t, v.asked.sorted(), "cargo", "order", "order") // foreseen, and run
	wantLines(t, v.take(), "cargo")

	got = foreseen(t, v.cargo(4), j, "arrive", "cargo") // in a run with the seal it comes after it
	wantProspects(t, got, map[string]flow.Action{
		"clear": flow.ActionSkip, "leave": flow.ActionRefuse, "arrive": flow.ActionNotReached,
		"order": flow.ActionNotReached, "cargo": flow.ActionNotReached,
	})
	wantLines(t, v.take())
}

// What comes after a seal does not bring what is exempt from it: that may need what is not there, or take long.
func TestAnExemptStepIsNotBroughtAfterTheSeal(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.cargo(1), flow.Options{Journal: j, Targets: []string{"arrive"}})
	v.take()
	v.asked.take()
	got := foreseen(t, v.cargo(2), j, "arrive")
	wantProspects(t, got, map[string]flow.Action{
		"clear": flow.ActionSkip, "leave": flow.ActionReuse, "arrive": flow.ActionReuse,
	})
	wantLines(t, v.take())
	wantLines(t, v.asked.take(), "leave", "leave")
}

func TestStatusOfAnExemptStep(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.cargo(1), flow.Options{Journal: j, Targets: []string{"leave"}})
	v.verdict = map[string]flow.Verdict{"order": flow.Gone("lost")}
	all, err := v.cargo(2).Check(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range all {
		order = append(order, s.Name)
	}
	// What is passed over first, in its order; then the seal and what comes after it now.
	wantLines(t, order, "quay", "clear", "crew", "harbour", "launch", "sail", "gull", "leave", "order", "cargo", "arrive")
	for _, s := range all {
		switch s.Name {
		case "cargo":
			wantLines(t, s.Changed, "spec")
			if s.Sealed != "" || !s.Asked || s.Verdict.Answer() != flow.AnswerHolds {
				t.Errorf("cargo: %+v", s)
			}
		case "order":
			if s.Verdict.Reason() != "lost" {
				t.Errorf("order: %+v", s)
			}
		case "clear":
			if s.Sealed != "leave" || s.Asked || len(s.After) > 0 {
				t.Errorf("clear: %+v", s)
			}
		}
	}
}

// An exempt step that the point of no return is ordered after stays before it, with what it needs: the verification of
// what was passed may need it.
func TestAnExemptStepAheadOfTheSeal(t *testing.T) {
	v := &voyage{}
	g := flow.New("voyage")
	there := true
	crew := flow.Add(g, v.task("crew"))
	chart := flow.Add(g, flow.Task[thing]{Name: "chart", Run: flow.Do(v.make("chart")), ExemptFromSeal: true})
	bridge := flow.Add(g, flow.Task[thing]{
		Name:  "bridge",
		Run:   flow.With1(v.grow("bridge"), chart),
		After: flow.Of(crew),
		Verify: func(context.Context, thing) flow.Verdict {
			if !there {
				return flow.Gone("it is gone")
			}
			return flow.Holds()
		},
		ExemptFromSeal: true,
	})
	cargo := flow.Add(g, flow.Task[thing]{
		Name:           "cargo",
		Run:            flow.Do(v.make("cargo")),
		After:          flow.Of(crew),
		ExemptFromSeal: true,
	})
	launch := flow.Add(g, flow.Task[thing]{
		Name:       "launch",
		Run:        flow.Do(v.make("launch")),
		After:      flow.Of(bridge, cargo),
		OrderAfter: flow.Of(bridge),
		Verify: func(context.Context, thing) flow.Verdict {
			if !there && !slices.Contains(v.take(), "bridge") {
				return flow.Unknown(errors.New("there is no bridge to look from"))
			}
			return flow.Holds()
		},
		Seal: true,
	})
	flow.Add(g, flow.Task[thing]{Name: "sail", Run: flow.Do(v.make("sail")), After: flow.Of(launch)})
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	journal := flow.Memory()
	all := flow.Options{Targets: []string{"sail", "cargo", "bridge"}, Parallel: 1, Journal: journal}
	mustRun(t, g, all)
	v.take()
	there = false
	mustRun(t, g, all)
}

// Without a journal an exempt step runs, once, and what is passed over does not.
func TestAnExemptStepWithoutAJournal(t *testing.T) {
	v := &voyage{}
	g := flow.New("voyage")
	crew := flow.Add(g, v.task("crew"))
	cargo := flow.Add(g, flow.Task[thing]{
		Name:           "cargo",
		Run:            flow.Do(v.make("cargo")),
		After:          flow.Of(crew),
		ExemptFromSeal: true,
	})
	launch := flow.Add(g, flow.Task[thing]{
		Name:       "launch",
		Run:        flow.Do(v.make("launch")),
		After:      flow.Of(cargo),
		Seal:       true,
		ResumeWhen: func() (bool, error) { return true, nil },
	})
	flow.Add(g, flow.Task[thing]{Name: "sail", Run: flow.Do(v.make("sail")), After: flow.Of(launch)})
	mustRun(t, g, flow.Options{Targets: []string{"sail", "cargo"}, Parallel: 1})
	lines := v.take()
	if len(lines) != 3 || lines[0] != "launch" {
		t.Errorf("the seal is brought to its end first: %q", lines)
	}
	wantLines(t, slices.Sorted(slices.Values(lines)), "cargo", "launch", "sail")
}

func TestExemptStepsTakeNothingThatIsPassedOver(t *testing.T) {
	for name, c := range map[string]struct {
		build func(*flow.Graph, *ledger)
		says  string
	}{
		"takes": {func(g *flow.Graph, l *ledger) {
			a := flow.Add(g, l.task("a"))
			flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.With1(l.grow("b"), a), ExemptFromSeal: true})
		}, "step b is exempt from points of no return and takes, or reruns after, the output of a, which is not"},
		"follows": {func(g *flow.Graph, l *ledger) {
			a := flow.Add(g, l.task("a"))
			flow.Add(g, flow.Task[thing]{
				Name:           "b",
				Run:            flow.Do(l.make("b")),
				RerunAfter:     flow.Of(a),
				ExemptFromSeal: true,
			})
		}, "step b is exempt from points of no return and takes, or reruns after, the output of a, which is not"},
		"a seal takes": {func(g *flow.Graph, l *ledger) {
			a := flow.Add(g, flow.Task[thing]{Name: "a", Run: flow.Do(l.make("a")), ExemptFromSeal: true})
			flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.With1(l.grow("b"), a), Seal: true})
		}, "step b is a point of no return and takes, or reruns after, the output of a, which is exempt from it"},
		"a seal": {func(g *flow.Graph, l *ledger) {
			flow.Add(g, flow.Task[thing]{Name: "a", Run: flow.Do(l.make("a")), Seal: true, ExemptFromSeal: true})
		}, "step a is a point of no return, and cannot be exempt from others"},
	} {
		g := flow.New("test")
		c.build(g, &ledger{})
		if err := g.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The output of a point of no return that an older release recorded lacks what today's type has besides. The step
// cannot be run again, so the old output counts, for the steps after it too.
func TestOutputOfAnOlderReleaseAtASeal(t *testing.T) {
	type before struct{ Name string }
	type after struct {
		Name    string
		Servers []int64
	}
	j := flow.Memory()
	older := flow.New("test")
	flow.Add(older, flow.Task[before]{
		Name: "launch",
		Run:  flow.Do(func(context.Context, flow.Say) (before, error) { return before{"x"}, nil }),
		Seal: true,
	})
	mustRun(t, older, flow.Options{Journal: j})

	var asked, taken after
	newer := func() *flow.Graph {
		g := flow.New("test")
		launch := flow.Add(g, flow.Task[after]{
			Name: "launch",
			Run: flow.Do(func(context.Context, flow.Say) (after, error) {
				t.Error("the point of no return was run a second time")
				return after{}, nil
			}),
			Verify: func(_ context.Context, v after) flow.Verdict { asked = v; return flow.Holds() },
			Seal:   true,
		})
		flow.Add(g, flow.Task[thing]{
			Name: "sail",
			Run: flow.With1(func(_ context.Context, _ flow.Say, v after) (thing, error) {
				taken = v
				return thing{}, nil
			}, launch),
		})
		return g
	}
	foreseen, err := newer().Predict(t.Context(), j, nil, true)
	if err != nil || foreseen[0].Action != flow.ActionReuse {
		t.Errorf("foreseen: %+v, %v", foreseen, err)
	}
	report := mustRun(t, newer(), flow.Options{Journal: j})
	wantOutcome(t, report, "launch", flow.Reused)
	if asked.Name != "x" || taken.Name != "x" {
		t.Errorf("verified with %+v, handed on %+v", asked, taken)
	}

	// What cannot be read at all is refused as before.
	s, err := j.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec := s.Steps["launch"]
	rec.Output = []byte(`{"Name":7}`)
	s.Steps["launch"] = rec
	if err := j.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err = newer().Run(t.Context(), flow.Options{Journal: j})
	var sealed *flow.SealedError
	if !errors.As(err, &sealed) {
		t.Errorf("an output that cannot be read: %v", err)
	}
}
