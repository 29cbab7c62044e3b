package flow_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// cameTrue reports whether an outcome is what an action promised.
func cameTrue(p flow.Action, o flow.Outcome) bool {
	return slices.Contains(map[flow.Action][]flow.Outcome{
		flow.ActionRun: {flow.Ran}, flow.ActionMayRun: {flow.Ran, flow.Reused}, flow.ActionReuse: {flow.Reused},
		flow.ActionSkip:   {flow.Skipped},
		flow.ActionRefuse: {flow.Failed}, flow.ActionUnknown: {flow.Failed}, flow.ActionNotReached: {flow.Skipped},
	}[p], o)
}

// foreseen foresees a run, runs, and holds one against the other.
func foreseen(t *testing.T, g *flow.Graph, j flow.Journal, targets ...string) map[string]flow.Prediction {
	t.Helper()
	counting := &countingJournal{Journal: j}
	all, err := g.Predict(t.Context(), counting, targets, true)
	if counting.saves != 0 {
		t.Error("foreseeing wrote the journal")
	}
	if err != nil {
		t.Fatal(err)
	}
	report, _ := g.Run(t.Context(), flow.Options{Journal: j, Targets: targets, Parallel: 1})
	if len(all) != len(report.Steps) {
		t.Fatalf("%d steps were foreseen, %d were wanted", len(all), len(report.Steps))
	}
	byName := map[string]flow.Prediction{}
	for i, f := range all {
		byName[f.Name] = f
		if s := report.Steps[i]; s.Name != f.Name || !cameTrue(f.Action, s.Outcome) {
			t.Errorf("%s: %s (%s) was foreseen, %s: %s (%s) came", f.Name, f.Action, f.Why, s.Name, s.Outcome, s.Reason)
		}
		if s := report.Steps[i]; f.Action == flow.ActionRun && s.Reason != f.Why {
			t.Errorf("%s: it runs because %q, not %q", f.Name, s.Reason, f.Why)
		}
	}
	return byName
}

func wantProspects(t *testing.T, got map[string]flow.Prediction, want map[string]flow.Action) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name].Action != want[name] {
			t.Errorf("%s: %s (%s), want %s", name, got[name].Action, got[name].Why, want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d steps, want %d", len(got), len(want))
	}
}

func TestForesight(t *testing.T) {
	const run, may, reuse, cannot, not = flow.ActionRun, flow.ActionMayRun, flow.ActionReuse, flow.ActionUnknown,
		flow.ActionNotReached
	spec := func(v any) func(*chain) { return func(c *chain) { c.spec = map[string]any{"b": v} } }
	says := func(name string, v flow.Verdict) func(*chain) {
		return func(c *chain) { c.verdict = map[string]flow.Verdict{name: v} }
	}
	for name, tc := range map[string]struct {
		change func(*chain)
		want   map[string]flow.Action
		why    map[string]string
	}{
		"nothing changed": {func(*chain) {}, map[string]flow.Action{"a": reuse, "b": reuse, "c": reuse, "d": reuse}, nil},
		"a spec changed, the output does not": {spec(2), map[string]flow.Action{"a": reuse, "b": run, "c": may, "d": reuse},
			map[string]string{"b": "changed: spec", "c": "if b comes out differently"}},
		"an output comes out differently": {func(c *chain) { c.spec, c.size = map[string]any{"a": 1}, 9 },
			map[string]flow.Action{"a": run, "b": may, "c": may, "d": reuse}, nil},
		"gone": {says("b", flow.Gone("no b")), map[string]flow.Action{"a": reuse, "b": run,
			"c": may, "d": reuse}, map[string]string{"b": "gone: no b"}},
		"could not ask": {says("b", flow.Unknown(errors.New("no way"))), map[string]flow.Action{"a": reuse, "b": cannot,
			"c": not, "d": not},
			map[string]string{"b": "could not verify: no way", "d": "the run would stop at c"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, j := &chain{}, flow.Memory()
			wantProspects(t, foreseen(t, c.graph(), j), map[string]flow.Action{"a": run, "b": run, "c": run, "d": run})
			tc.change(c)
			got := foreseen(t, c.graph(), j)
			wantProspects(t, got, tc.want)
			for step, why := range tc.why {
				if got[step].Why != why {
					t.Errorf("%s: %q, want %q", step, got[step].Why, why)
				}
			}
		})
	}
}

func TestForesightOfTargets(t *testing.T) {
	c, j := &chain{}, flow.Memory()
	wantProspects(t, foreseen(t, c.graph(), j, "b"), map[string]flow.Action{"a": flow.ActionRun, "b": flow.ActionRun})
	c.asked.take()
	if _, err := c.graph().Predict(t.Context(), j, []string{"a"}, true); err != nil {
		t.Fatal(err)
	}
	wantLines(t, c.asked.take(), "a") // no other step is asked
	if _, err := c.graph().Predict(t.Context(), j, []string{"a"}, false); err != nil {
		t.Fatal(err)
	}
	wantLines(t, c.asked.take())
	_, err := c.graph().Predict(t.Context(), j, []string{"e"}, true)
	errorAs[*flow.UnknownStepError](t, err)
}

func TestForesightAtASeal(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	foreseen(t, v.graph(), j, "launch")
	v.speed = 7
	got := foreseen(t, v.graph(), j)
	wantProspects(t, got, map[string]flow.Action{
		"crew": flow.ActionSkip, "harbour": flow.ActionSkip, "launch": flow.ActionReuse, "sail": flow.ActionRun,
		"gull": flow.ActionRun,
	})
	_, err := v.graph().Predict(t.Context(), j, []string{"harbour"}, true)
	errorAs[*flow.SealedError](t, err)
	v.verdict = map[string]flow.Verdict{"launch": flow.Gone("sunk")}
	got = foreseen(t, v.graph(), j, "sail")
	wantProspects(t, got, map[string]flow.Action{
		"crew": flow.ActionSkip, "harbour": flow.ActionSkip, "launch": flow.ActionRefuse, "sail": flow.ActionNotReached,
	})
}

func TestForesightAfterAFailure(t *testing.T) {
	fails := true
	g := flow.New("failing")
	flow.Add(g, flow.Task[int]{Name: "a", Run: flow.Do(func(context.Context, flow.Say) (int, error) {
		if fails {
			return 0, errors.New("no")
		}
		return 1, nil
	})})
	j := flow.Memory()
	if _, err := g.Run(t.Context(), flow.Options{Journal: j}); err == nil {
		t.Fatal("it did not fail")
	}
	fails = false
	if got := foreseen(t, g, j)["a"]; got.Why != "it failed last time" {
		t.Errorf("%+v", got)
	}
}

// What a step is made from is reported field by field, with both values.
func TestChangesHaveValues(t *testing.T) {
	type m = map[string]any
	c, j := &chain{spec: m{"b": m{"same": 1, "x": m{"y": "old", "gone": true, "null": nil}, "list": []int{1}}}},
		flow.Memory()
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.spec["b"] = m{"same": 1, "x": m{"y": "new", "null": 0}, "list": []int{1, 2}, "born": nil}
	got, err := c.graph().Predict(t.Context(), j, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, change := range got[1].Changes {
		lines = append(lines, change.String()+": "+string(change.Was)+" → "+string(change.Is))
	}
	wantLines(t, lines, "spec born:  → null", "spec list: [1] → [1,2]", "spec x.gone: true → ", "spec x.null: null → 0",
		`spec x.y: "old" → "new"`)
}

// A step that takes something else than before is reported as changed.
func TestAnArgumentThatIsNoneAnyMore(t *testing.T) {
	var l ledger
	graph := func(takes bool) *flow.Graph {
		g := flow.New("taker")
		a, b := flow.Add(g, l.task("a")), flow.Add(g, l.task("b"))
		c := flow.Add(g, l.task("c"))
		if c.RerunAfter(a); takes {
			c.RerunAfter(b)
		}
		return g
	}
	j := flow.Memory()
	mustRun(t, graph(true), flow.Options{Journal: j})
	if got := foreseen(t, graph(false), j)["c"]; got.Why != "changed: output of b" {
		t.Errorf("%s: %s", got.Action, got.Why)
	}
}

// A run that is refused must not make the change that it refused invisible to the next plan.
func TestAFailedAttemptHidesNoChange(t *testing.T) {
	j, fails := flow.Memory(), false
	graph := func(spec int) *flow.Graph {
		g := flow.New("g")
		flow.Add(g, flow.Task[thing]{
			Name: "a",
			Run: flow.Do(func(context.Context, flow.Say) (thing, error) {
				if fails {
					return thing{}, errors.New("refused")
				}
				return thing{Name: "a"}, nil
			}),
			Spec: map[string]int{"size": spec},
		})
		return g
	}
	changes := func(spec int) []string {
		t.Helper()
		all, err := graph(spec).Predict(t.Context(), j, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, c := range all[0].Changes {
			lines = append(lines, c.Path+" "+string(c.Was)+" "+string(c.Is))
		}
		return lines
	}
	if _, err := graph(1).Run(t.Context(), flow.Options{Journal: j}); err != nil {
		t.Fatal(err)
	}
	want := []string{"size 1 2"}
	for range 2 {
		fails = true
		if got := changes(2); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if _, err := graph(2).Run(t.Context(), flow.Options{Journal: j}); err == nil {
			t.Fatal("it did not fail")
		}
	}
	if got := changes(1); len(got) > 0 {
		t.Errorf("what it was last done with has changed: %q", got)
	}
	fails = false
	if _, err := graph(2).Run(t.Context(), flow.Options{Journal: j}); err != nil {
		t.Fatal(err)
	}
	if got := changes(2); len(got) > 0 {
		t.Errorf("after it was done: %q", got)
	}
	if s, err := j.Load(t.Context()); err != nil || s.Steps["a"].Made != nil {
		t.Errorf("%v, %+v", err, s.Steps["a"])
	}
}
