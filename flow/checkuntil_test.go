package flow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// A Verify that does not answer is Unknown when the time to verify is over, for the reason of that, and does not
// hold up the others.
func TestCheckUntil(t *testing.T) {
	block := false
	g := flow.New("slow")
	flow.Add(g, flow.Task[int]{
		Name: "slow",
		Run:  flow.Do(func(context.Context, flow.Say) (int, error) { return 1, nil }),
		Verify: func(context.Context, int) flow.Verdict {
			if block {
				select {} // it ignores even its context
			}
			return flow.Holds()
		},
	})
	flow.Add(g, flow.Task[int]{
		Name: "quick",
		Run:  flow.Do(func(context.Context, flow.Say) (int, error) { return 1, nil }),
		Verify: func(context.Context, int) flow.Verdict {
			return flow.Holds()
		},
	})
	j := flow.Memory()
	mustRun(t, g, flow.Options{Journal: j})
	block = true
	silence := errors.New("no answer")
	world, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, silence)
	defer cancel()
	began := time.Now()
	all, err := g.CheckUntil(t.Context(), world, j)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second { // it would never end by itself
		t.Errorf("it took %s", took)
	}
	for _, s := range all {
		switch s.Name {
		case "slow":
			if s.Verdict.Answer() != flow.AnswerUnknown || !errors.Is(s.Verdict.Err(), silence) {
				t.Errorf("slow: %v", s.Verdict)
			}
		case "quick":
			if s.Verdict.Answer() != flow.AnswerHolds {
				t.Errorf("quick: %v", s.Verdict)
			}
		}
	}
}
