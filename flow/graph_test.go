package flow_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

func TestValidateRefuses(t *testing.T) {
	var l ledger
	other := flow.Add(flow.New("elsewhere"), l.task("foreign"))
	run := flow.Do(l.make("b"))
	adds := func(task flow.Task[thing]) func(*flow.Graph) {
		return func(g *flow.Graph) { flow.Add(g, task) }
	}
	cases := map[string]struct {
		build func(g *flow.Graph)
		want  string
	}{
		"duplicate": {
			func(g *flow.Graph) { flow.Add(g, l.task("a")); flow.Add(g, l.task("a")) },
			`two steps are named "a"`,
		},
		"capital":       {adds(l.task("Wait")), `"Wait" is not in kebab case`},
		"underscore":    {adds(l.task("wait_cp")), `"wait_cp" is not in kebab case`},
		"double hyphen": {adds(l.task("wait--cp")), `"wait--cp" is not in kebab case`},
		"empty name":    {adds(l.task("")), `"" is not in kebab case`},
		"nil argument": {
			adds(flow.Task[thing]{Name: "b", Run: flow.With1(l.grow("b"), (*flow.Step[thing])(nil))}),
			"step b: argument 1 is a nil handle",
		},
		"nil follows": {
			adds(flow.Task[thing]{Name: "b", Run: run, RerunAfter: flow.Of(nil)}),
			"step b: RerunAfter is a nil handle",
		},
		"nil after": {
			adds(flow.Task[thing]{Name: "b", Run: run, After: flow.Of(nil)}),
			"step b: After is a nil handle",
		},
		"nil before": {
			adds(flow.Task[thing]{Name: "b", Run: run, Before: flow.Of(nil)}),
			"step b: Before is a nil handle",
		},
		"foreign argument": {
			adds(flow.Task[thing]{Name: "b", Run: flow.With1(l.grow("b"), other)}),
			"step b: argument 1 is step foreign of another graph (elsewhere)",
		},
		"foreign after": {
			adds(flow.Task[thing]{Name: "b", Run: run, After: flow.Of(other)}),
			"step b: After is step foreign of another graph",
		},
		"foreign before": {
			adds(flow.Task[thing]{Name: "b", Run: run, Before: flow.Of(other)}),
			"step b: Before is step foreign of another graph",
		},
		"nil function": {adds(flow.Task[thing]{Name: "b", Run: flow.Do[thing](nil)}), "step b has no function"},
		"nil function with an argument": {
			adds(flow.Task[thing]{Name: "b", Run: flow.With1[thing, thing](nil, other)}),
			"step b has no function",
		},
		"nil work": {adds(flow.Task[thing]{Name: "b"}), "step b has no function"},
		"output": {
			func(g *flow.Graph) {
				flow.Add(g, flow.Task[chan int]{
					Name: "b",
					Run:  flow.Do(func(context.Context, flow.Say) (chan int, error) { return nil, nil }),
				})
			},
			"step b: its output cannot be written to the journal",
		},
		"spec": {
			adds(flow.Task[thing]{Name: "b", Run: run, Spec: func() {}}),
			"step b: its spec cannot be written",
		},
		"deadline": {
			adds(flow.Task[thing]{Name: "b", Run: run, Deadline: -time.Second}),
			"step b: deadline -1s is negative",
		},
		"waits": {
			adds(flow.Task[thing]{
				Name:     "b",
				Run:      run,
				Deadline: 12 * time.Minute,
				Waits:    []flow.Wait{{For: "the mill", Within: 5 * time.Minute}, {For: "the bread", Within: 10 * time.Minute}},
			}),
			"step b waits up to 5m0s for the mill + 10m0s for the bread = 15m0s, which is 3m0s more than its deadline of 12m0s",
		},
		"one wait": {
			adds(flow.Task[thing]{
				Name:     "b",
				Run:      run,
				Deadline: time.Minute,
				Waits:    []flow.Wait{{For: "rain", Within: time.Hour}},
			}),
			"step b waits up to 1h0m0s for rain, which is 59m0s more than its deadline of 1m0s",
		},
		"cycle": {
			func(g *flow.Graph) {
				a := flow.Add(g, l.task("a"))
				b := flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.With1(l.grow("b"), a)})
				a.After(flow.Add(g, flow.Task[thing]{Name: "c", Run: flow.With1(l.grow("c"), b)}))
			},
			"these steps wait for each other: a → c → b → a",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := flow.New("test")
			c.build(g)
			_, err := g.Run(t.Context(), flow.Options{})
			errorAs[*flow.InvalidError](t, err)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %q, want it to say %q", err, c.want)
			}
		})
	}
	wantLines(t, l.take()) // nothing ran
}

func TestValidateReportsEverything(t *testing.T) {
	var l ledger
	g := flow.New("test")
	flow.Add(g, l.task("A"))
	flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.Do(l.make("b")), Deadline: -1})
	if got := len(errorAs[*flow.InvalidError](t, g.Validate()).Problems); got != 2 {
		t.Errorf("%d problems, want 2", got)
	}
}

func TestWaitsThatFillTheDeadline(t *testing.T) {
	var l ledger
	g := flow.New("test")
	flow.Add(g, flow.Task[thing]{
		Name:     "a",
		Run:      flow.Do(l.make("a")),
		Deadline: 3 * time.Minute,
		Waits:    []flow.Wait{{For: "one", Within: time.Minute}, {For: "two", Within: 2 * time.Minute}},
	})
	// without a deadline there is nothing to exceed
	flow.Add(g, flow.Task[thing]{
		Name:  "b",
		Run:   flow.Do(l.make("b")),
		Waits: []flow.Wait{{For: "rain", Within: time.Hour}},
	})
	if err := g.Validate(); err != nil {
		t.Error(err)
	}
}

func TestStepsDescribesInOrder(t *testing.T) {
	var l ledger
	g := flow.New("test")
	late := flow.Add(g, l.task("late"))
	early := flow.Add(g, flow.Task[thing]{
		Name:     "early",
		Doc:      "First of all.",
		Run:      flow.Do(l.make("early")),
		Deadline: time.Minute,
		Waits:    []flow.Wait{{For: "birds", Within: time.Second}},
	})
	mid := flow.Add(g, flow.Task[thing]{Name: "mid", Run: flow.With1(l.grow("mid"), early), Seal: true})
	late.After(mid, early, mid)

	steps := g.Steps()
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
	}
	wantLines(t, names, "early", "mid", "late")
	if s := steps[0]; s.Doc != "First of all." || s.Deadline != time.Minute ||
		!slices.Equal(s.Waits, []flow.Wait{{For: "birds", Within: time.Second}}) {
		t.Errorf("early is described as %+v", s)
	}
	if !steps[1].Sealed || steps[0].Sealed {
		t.Error("only mid is sealed")
	}
	wantLines(t, steps[2].Needs, "mid", "early")
	late.RerunAfter(early).OrderAfter(mid)
	links := func(s flow.Info) (lines []string) {
		for _, l := range s.Behind {
			lines = append(lines, string(l.Kind)+" "+l.Step)
		}
		return lines
	}
	steps = g.Steps()
	wantLines(t, links(steps[0]))
	wantLines(t, links(steps[1]), "argument early")
	wantLines(t, links(steps[2]), "follows early", "after mid", "after early", "yields mid")
}

func TestUnknownTargetSuggestsTheNearest(t *testing.T) {
	var l ledger
	g := flow.New("test")
	flow.Add(g, l.task("kubeconfig"))
	flow.Add(g, l.task("talosconfig"))

	_, err := g.Run(t.Context(), flow.Options{Targets: []string{"kubconfg"}})
	if e := errorAs[*flow.UnknownStepError](t, err); e.Nearest != "kubeconfig" || e.Name != "kubconfg" {
		t.Errorf("error is %+v", e)
	}
	_, err = g.Run(t.Context(), flow.Options{Targets: []string{"zebra-crossing"}})
	if e := errorAs[*flow.UnknownStepError](t, err); e.Nearest != "" {
		t.Errorf("%q was suggested for a word unlike any", e.Nearest)
	}
	wantLines(t, l.take())
}

func TestNearest(t *testing.T) {
	words := []string{"cilium", "hcloud-ccm", "talos-ccm", "pivot"}
	for name, want := range map[string]string{
		"cillium": "cilium", "talos-cmc": "talos-ccm", "hcloudccm": "hcloud-ccm", "pivto": "pivot", "hcl": "hcloud-ccm",
		"x": "", "": "",
	} {
		if got := flow.Nearest(name, words); got != want {
			t.Errorf("nearest to %q is %q, want %q", name, got, want)
		}
	}
}
