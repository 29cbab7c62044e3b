package flow_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

func statuses(t *testing.T, g *flow.Graph, j flow.Journal) map[string]flow.Status {
	t.Helper()
	all, err := g.Check(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]flow.Status{}
	for _, s := range all {
		byName[s.Name] = s
	}
	return byName
}

func TestCheckOfNothing(t *testing.T) {
	c := chain{}
	for name, s := range statuses(t, c.graph(), flow.Memory()) {
		if s.State != "" || s.Asked {
			t.Errorf("%s: %+v", name, s)
		}
	}
	wantLines(t, c.asked.take())
}

func TestCheckComparesAndWritesNothing(t *testing.T) {
	c, j := chain{spec: map[string]any{"a": 1}}, &countingJournal{Journal: flow.Memory()}
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.take()
	writes := j.saves
	unlock, err := j.Lock(t.Context()) // as a run at work would hold it
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	c.spec["a"] = 2
	c.verdict = map[string]flow.Verdict{"b": flow.Gone("no b"), "c": flow.Unknown(errors.New("no way"))}
	got := statuses(t, c.graph(), j)
	if s := got["a"]; s.State != flow.StateDone || !slices.Equal(s.Changed, []string{"spec"}) ||
		s.Verdict.Answer() != flow.AnswerHolds {
		t.Errorf("a: %+v", s)
	}
	if got["a"].After != nil || !slices.Equal(got["b"].After, []string{"a"}) ||
		!slices.Equal(got["c"].After, []string{"b"}) {
		t.Errorf("a depends on %q, b on %q, c on %q", got["a"].After, got["b"].After, got["c"].After)
	}
	if s := got["b"]; s.Changed != nil || s.Verdict.String() != "gone: no b" {
		t.Errorf("b: %+v", s)
	}
	if s := got["c"]; !s.Asked || s.Verdict.Answer() != flow.AnswerUnknown || s.Verdict.Err() == nil {
		t.Errorf("c: %+v", s)
	}
	wantLines(t, c.asked.sorted(), "a", "b", "c", "d")
	wantLines(t, c.take())
	if j.saves != writes {
		t.Error("a check wrote the journal")
	}
}

func TestRecordedDoesNotAsk(t *testing.T) {
	c, j := chain{spec: map[string]any{"a": 1}}, flow.Memory()
	mustRun(t, c.graph(), flow.Options{Journal: j})
	c.spec["a"] = 2
	all, err := c.graph().Recorded(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if s := all[0]; s.Name != "a" || s.State != flow.StateDone || s.Asked || len(s.Changed) != 1 {
		t.Errorf("a: %+v", s)
	}
	wantLines(t, c.asked.take())
}

func TestCheckBehindASeal(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	mustRun(t, v.graph(), flow.Options{Journal: j, Targets: []string{"launch"}})
	got := statuses(t, v.graph(), j)
	if s := got["harbour"]; s.Sealed != "launch" || s.Asked || s.State != flow.StateDone {
		t.Errorf("harbour: %+v", s)
	}
	if s := got["launch"]; s.Sealed != "" || !s.Asked {
		t.Errorf("launch: %+v", s)
	}
	wantLines(t, v.asked.take(), "launch")
}
