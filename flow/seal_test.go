package flow_test

import (
	"context"
	"errors"
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
	crew := flow.Add(g, "crew", v.make("crew")).Verify(verify("crew"))
	harbour := flow.Add(g, "harbour", v.make("harbour")).Spec(v.speed).Verify(verify("harbour"))
	launch := flow.Add1(g, "launch", v.grow("launch"), harbour).After(crew).Spec(v.speed).Verify(verify("launch")).Seal()
	flow.Add2(g, "sail", func(_ context.Context, _ flow.Say, from, by thing) (thing, error) {
		v.add("sail from " + from.Name + " after " + by.Name)
		return thing{}, nil
	}, harbour, launch).Spec(v.speed).Verify(verify("sail"))
	flow.Add(g, "gull", v.make("gull"))
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
	if e := errorAs[*flow.SealedError](t, err); e.Step != "launch" || e.By != "launch" || e.Reason != "gone: the ship is not afloat" {
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

// A seal that failed, or whose run died, is not passed: what is before it counts.
func TestASealThatIsNotDoneSealsNothing(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	dying := &dyingJournal{Journal: j, at: 6} // the "done" of launch
	if _, err := v.graph().Run(t.Context(), flow.Options{Journal: dying, Targets: []string{"launch"}}); !errors.Is(err, errDied) {
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
	if e := errorAs[*flow.StepError](t, err); e.Step != "sail" {
		t.Errorf("error is %v", err)
	}
	wantLines(t, v.take())
}

func TestASealThatWasPassedWithoutARecord(t *testing.T) {
	v, j := &voyage{}, flow.Memory()
	underway := func() (bool, error) { return true, nil }
	graph := func() *flow.Graph {
		g := flow.New("voyage")
		crew := flow.Add(g, "crew", v.make("crew"))
		launch := flow.Add(g, "launch", v.make("launch")).After(crew).Seal().Underway(func() (bool, error) { return underway() })
		flow.Add(g, "sail", v.make("sail")).After(launch)
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
