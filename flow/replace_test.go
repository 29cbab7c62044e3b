package flow_test

import (
	"context"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// TestReplace gives a step in the middle of a graph another function: it runs in the old one's place, its output
// reaches those that take it, and what described the old function is gone.
func TestReplace(t *testing.T) {
	var order []string
	text := func(name string) func(context.Context, flow.Say) (string, error) {
		return func(context.Context, flow.Say) (string, error) { order = append(order, name); return name, nil }
	}
	g, journal := flow.New("replace"), flow.Memory()
	first := flow.Add(g, "first", text("first"))
	middle := flow.Add1(g, "middle", func(context.Context, flow.Say, string) (string, error) {
		t.Error("the replaced function ran")
		return "", nil
	}, first).Doc("the old one").Spec("old").Waits(flow.Wait{For: "the old one", Within: 1}).
		Verify(func(context.Context, string) flow.Verdict { t.Error("the replaced Verify ran"); return flow.Holds() })
	var got string
	flow.Add1(g, "last", func(_ context.Context, _ flow.Say, from string) (string, error) {
		got = from
		return "", nil
	}, middle)
	middle.Replace(text("own"))

	for range 2 { // the second run verifies
		if _, err := g.Run(t.Context(), flow.Options{Journal: journal, Parallel: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(order) != 2 || order[0] != "first" || order[1] != "own" || got != "own" {
		t.Errorf("ran %v, the last step got %q; want first, own, each once, and own", order, got)
	}
	if i := g.Steps()[1]; i.Name != "middle" || i.Doc != "" || len(i.Waits) != 0 || len(i.Needs) != 1 {
		t.Errorf("the step is %+v; want middle after first, without doc and waits", i)
	}
}

func TestReplaceWithNothing(t *testing.T) {
	g := flow.New("replace")
	flow.Add(g, "step", func(context.Context, flow.Say) (string, error) { return "", nil }).Replace(nil)
	if g.Validate() == nil {
		t.Error("a step without a function is valid")
	}
}
