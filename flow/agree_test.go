package flow_test

import (
	"context"
	"errors"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// A status and a plan of the same journal name the same steps that might run again, and for the same steps.
func TestCheckAndForeseeAgree(t *testing.T) {
	graph := func(spec int, verdict flow.Verdict, fails bool) *flow.Graph {
		var l ledger
		g := flow.New("agreeing")
		a := flow.Add(g, flow.Task[thing]{
			Name:   "a",
			Run:    flow.Do(l.make("a")),
			Spec:   spec,
			Verify: func(context.Context, thing) flow.Verdict { return verdict },
		})
		b := flow.Add(g, flow.Task[thing]{
			Name: "b",
			Run: flow.Do(func(context.Context, flow.Say) (thing, error) {
				if fails {
					return thing{}, errors.New("no")
				}
				return thing{Name: "b"}, nil
			}),
			Spec: fails,
		})
		flow.Add(g, flow.Task[thing]{Name: "follows-a", Run: flow.Do(l.make("follows-a")), RerunAfter: flow.Of(a)})
		c := flow.Add(g, flow.Task[thing]{Name: "takes-a", Run: flow.With1(l.grow("takes-a"), a)})
		flow.Add(g, flow.Task[thing]{
			Name:       "follows-both",
			Run:        flow.Do(l.make("follows-both")),
			RerunAfter: flow.Of(c, b),
		})
		flow.Add(g, flow.Task[thing]{Name: "after-a", Run: flow.Do(l.make("after-a")), After: flow.Of(a)})
		return g
	}
	for name, tt := range map[string]struct {
		spec    int
		verdict flow.Verdict
		failed  bool
		want    map[string]string // step → its After
	}{
		"nothing changed": {1, flow.Holds(), false, nil},
		"a spec changed": {2, flow.Holds(), false, map[string]string{
			"follows-a": "a", "takes-a": "a", "follows-both": "takes-a"}},
		"what a step made is gone": {1, flow.Gone("no a"), false, map[string]string{
			"follows-a": "a", "takes-a": "a", "follows-both": "takes-a"}},
		"a step failed when it ran again": {1, flow.Holds(), true, map[string]string{"follows-both": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := flow.Memory()
			mustRun(t, graph(1, flow.Holds(), false), flow.Options{Journal: j})
			if tt.failed {
				_, err := graph(1, flow.Holds(), true).Run(t.Context(), flow.Options{Journal: j, Targets: []string{"b"}})
				errorAs[*flow.StepError](t, err)
			}
			g := graph(tt.spec, tt.verdict, false)
			checked, err := g.Check(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			foreseen, err := g.Predict(t.Context(), j, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range checked {
				var want []string
				if w := tt.want[s.Name]; w != "" {
					want = []string{w}
				}
				wantLines(t, s.After, want...)
				wantLines(t, foreseen[i].After, want...)
				if might := foreseen[i].Action == flow.ActionMayRun; might != (want != nil) {
					t.Errorf("%s: %s, its After is %q", s.Name, foreseen[i].Action, s.After)
				}
			}
		})
	}
}
