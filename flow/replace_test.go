package flow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// TestReplace gives a step in the middle of a graph another function, with other arguments and a description of its
// own: it runs in the old one's place, and its output reaches those that take it.
func TestReplace(t *testing.T) {
	var l ledger
	g, journal := flow.New("replace"), flow.Memory()
	first, other := flow.Add(g, l.task("first")), flow.Add(g, l.task("other"))
	middle := flow.Add(g, flow.Task[thing]{
		Name: "middle",
		Doc:  "the old one",
		Run: flow.With1(func(context.Context, flow.Say, thing) (thing, error) {
			t.Error("the replaced function ran")
			return thing{}, nil
		}, first),
		Spec: "old",
		Verify: func(context.Context, thing) flow.Verdict {
			t.Error("the replaced Verify ran")
			return flow.Holds()
		},
		Waits: []flow.Wait{{For: "the old one", Within: 1}},
	})
	flow.Add(g, flow.Task[thing]{Name: "last", Run: flow.With1(l.grow("last"), middle)})
	asked := 0
	middle.Replace(flow.Task[thing]{
		Name:   "middle",
		Doc:    "the new one",
		Run:    flow.With1(l.grow("middle"), other),
		Spec:   "new",
		Verify: func(context.Context, thing) flow.Verdict { asked++; return flow.Holds() },
		Waits:  []flow.Wait{{For: "the new one", Within: 2}},
	})

	for range 2 { // the second run verifies
		mustRun(t, g, flow.Options{Journal: journal, Parallel: 1})
	}
	wantLines(t, l.take(), "first", "other", "middle", "last")
	if asked != 1 {
		t.Errorf("the new Verify was called %d times, want once", asked)
	}
	if spec := string(mustLoad(t, journal).Steps["middle"].Spec); spec != `"new"` {
		t.Errorf("the recorded spec is %s", spec)
	}
	is := g.Steps()[2]
	if is.Name != "middle" || is.Doc != "the new one" || len(is.Waits) != 1 || is.Waits[0].For != "the new one" {
		t.Errorf("the step is %+v", is)
	}
	wantLines(t, is.Needs, "other", "first")
}

// What the task does not set the step keeps, and so its record stays valid: also the hash, for the same arguments.
func TestReplaceKeepsWhatItDoesNotSet(t *testing.T) {
	for name, replace := range map[string]func(*ledger, *flow.Step[thing], *flow.Step[thing]){
		"nothing": func(*ledger, *flow.Step[thing], *flow.Step[thing]) {},
		"only the sentence": func(_ *ledger, _, middle *flow.Step[thing]) {
			middle.Replace(flow.Task[thing]{Doc: "sentence"})
		},
		"the function": func(l *ledger, _, middle *flow.Step[thing]) {
			middle.Replace(flow.Task[thing]{Run: flow.Do(l.make("middle"))})
		},
		"the function, with the argument": func(l *ledger, first, middle *flow.Step[thing]) {
			middle.Replace(flow.Task[thing]{Run: flow.With1(l.grow("middle"), first)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			j, size := flow.Memory(), 0
			build := func(replace func(*ledger, *flow.Step[thing], *flow.Step[thing])) *flow.Graph {
				g := flow.New("replace")
				first := flow.Add(g, flow.Task[thing]{
					Name: "first",
					Run:  flow.Do(func(context.Context, flow.Say) (thing, error) { return thing{Size: size}, nil }),
					Spec: size,
				})
				before := flow.Add(g, l.task("before"))
				middle := flow.Add(g, flow.Task[thing]{
					Name:     "middle",
					Doc:      "sentence",
					Run:      flow.With1(l.grow("middle"), first),
					After:    flow.Of(before),
					Spec:     "spec",
					Verify:   func(context.Context, thing) flow.Verdict { l.add("verify"); return flow.Holds() },
					Deadline: time.Hour,
					Waits:    []flow.Wait{{For: "it", Within: time.Minute}},
				})
				replace(&l, first, middle)
				return g
			}
			mustRun(t, build(func(*ledger, *flow.Step[thing], *flow.Step[thing]) {}), flow.Options{Journal: j})
			l.take()

			g := build(replace)
			wantOutcome(t, mustRun(t, g, flow.Options{Journal: j}), "middle", flow.Reused)
			wantLines(t, l.take(), "verify")
			is := g.Steps()[2]
			if is.Doc != "sentence" || is.Deadline != time.Hour || len(is.Waits) != 1 {
				t.Errorf("the step is %+v", is)
			}
			wantLines(t, is.Needs, "first", "before")

			size = 1 // the output of what it took before changes
			wantOutcome(t, mustRun(t, build(replace), flow.Options{Journal: j}), "middle", flow.Ran)
			wantLines(t, l.take(), "middle")
		})
	}
}

// What a step cannot be replaced with is a problem of the graph.
func TestReplaceRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		with func(g *flow.Graph, l *ledger, a *flow.Step[thing]) flow.Task[thing]
		want string
	}{
		"another name": {
			func(_ *flow.Graph, l *ledger, _ *flow.Step[thing]) flow.Task[thing] { return l.task("other") },
			`step a: Replace has the name "other"; a step that is replaced keeps its name`,
		},
		"a nil function": {
			func(*flow.Graph, *ledger, *flow.Step[thing]) flow.Task[thing] {
				return flow.Task[thing]{Run: flow.Do[thing](nil)}
			},
			"step a: Replace has no function",
		},
		"the output of a later step": {
			func(g *flow.Graph, l *ledger, a *flow.Step[thing]) flow.Task[thing] {
				later := flow.Add(g, flow.Task[thing]{Name: "later", Run: flow.Do(l.make("later")), After: flow.Of(a)})
				return flow.Task[thing]{Run: flow.With1(l.grow("a"), later)}
			},
			"these steps wait for each other: a → later → a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			g := flow.New("replace")
			a := flow.Add(g, l.task("a"))
			a.Replace(c.with(g, &l, a))
			if err := g.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want it to say %q", err, c.want)
			}
		})
	}
}

// A step with Before is put in front of steps that are in the graph already.
func TestBefore(t *testing.T) {
	var l ledger
	g := flow.New("before")
	last := flow.Add(g, l.task("last"))
	flow.Add(g, l.task("beside"))
	between := flow.Add(g, flow.Task[thing]{Name: "between", Run: flow.Do(l.make("between")), Before: flow.Of(last)})
	mustRun(t, g, flow.Options{Targets: []string{"last"}})
	wantLines(t, l.take(), "between", "last")
	last.Replace(flow.Task[thing]{Before: flow.Of(between)})
	if err := g.Validate(); err == nil || !strings.Contains(err.Error(), "wait for each other") {
		t.Errorf("error is %v", err)
	}
}
