package flow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// budgeted is a (5m) → b (10m, verified) and c (20m) → d (1m, yields to b), and e (4m) by itself.
func budgeted(l *ledger) *flow.Graph {
	g := flow.New("test")
	a := flow.Add(g, flow.Task[thing]{Name: "a", Run: flow.Do(l.make("a")), Deadline: 5 * time.Minute})
	b := flow.Add(g, flow.Task[thing]{
		Name:     "b",
		Run:      flow.With1(l.grow("b"), a),
		Verify:   func(context.Context, thing) flow.Verdict { return flow.Holds() },
		Deadline: 10 * time.Minute,
	})
	c := flow.Add(g, flow.Task[thing]{Name: "c", Run: flow.Do(l.make("c")), Deadline: 20 * time.Minute})
	flow.Add(g, flow.Task[thing]{
		Name:       "d",
		Run:        flow.With1(l.grow("d"), c),
		OrderAfter: flow.Of(b),
		Deadline:   time.Minute,
	})
	flow.Add(g, flow.Task[thing]{Name: "e", Run: flow.Do(l.make("e")), Deadline: 4 * time.Minute})
	return g
}

// A run's deadline is not less than its steps may take, and the error adds it up.
func TestTheRunsBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		targets  []string
		parallel int
		needs    time.Duration
		says     string
	}{
		"as many at once as can": {nil, 0, 21 * time.Minute, "c 20m0s + d 1m0s = 21m0s"},
		"some of the steps":      {[]string{"b"}, 0, 15*time.Minute + flow.VerifyWithin, "a 5m0s + b 10m20s = 15m20s"},
		"what one yields to":     {[]string{"b", "d"}, 0, 21 * time.Minute, "c 20m0s + d 1m0s = 21m0s"},
		"one at a time": {nil, 1, 40*time.Minute + flow.VerifyWithin, "a 5m0s + b 10m20s + c 20m0s + d 1m0s + e " +
			"4m0s = 40m20s"},
		"two at a time": {nil, 2, 21*time.Minute + (19*time.Minute+flow.VerifyWithin)/2,
			"at most 2 at once: c 20m0s + d 1m0s + 1/2 of the others 9m40s = 30m40s"},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			opt := flow.Options{Targets: tt.targets, Parallel: tt.parallel, Deadline: tt.needs - time.Second}
			_, err := budgeted(&l).Run(t.Context(), opt)
			e := errorAs[*flow.BudgetError](t, err)
			if e.Needs != tt.needs || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "is 1s less") {
				t.Errorf("needs %s: %v", e.Needs, err)
			}
			wantLines(t, l.take()) // nothing ran
			opt.Deadline = tt.needs
			if _, err := budgeted(&l).Run(t.Context(), opt); err != nil {
				t.Errorf("a deadline that is enough: %v", err)
			}
			if err := budgeted(&l).Fits(tt.needs-1, tt.parallel, tt.targets...); err == nil {
				t.Error("on paper it fits")
			}
			if err := budgeted(&l).Fits(0, tt.parallel, tt.targets...); err != nil {
				t.Errorf("no deadline does not fit: %v", err)
			}
		})
	}
}

func TestAStepWithoutADeadlineFitsIntoNone(t *testing.T) {
	var l ledger
	_, err := oneStep(&l).Run(t.Context(), flow.Options{Deadline: time.Hour})
	if e := errorAs[*flow.BudgetError](t, err); e.Endless != "a" || !strings.Contains(err.Error(), "step a has none") {
		t.Errorf("error is %v", err)
	}
	if err := oneStep(&l).Fits(time.Hour, 0, "b"); err == nil {
		t.Error("a step that there is not fits")
	}
}

// A step's deadline comes before the run's, and knows better.
func TestAStepsDeadlinePassesBeforeTheRuns(t *testing.T) {
	g := flow.New("test")
	flow.Add(g, flow.Task[int]{
		Name: "a",
		Run: flow.Do(func(ctx context.Context, _ flow.Say) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}),
		Deadline: 20 * time.Millisecond,
	})
	_, err := g.Run(t.Context(), flow.Options{Deadline: enough})
	errorAs[*flow.DeadlineError](t, err)
	var late *flow.RunDeadlineError
	if errors.As(err, &late) {
		t.Errorf("error is %v", err)
	}
}

// The deadline of a run ends it as a failure that says what was at work; what is
// done is kept. Only a step that overstays its own deadline leads to it.
func TestTheRunsDeadlinePasses(t *testing.T) {
	const within = 300 * time.Millisecond
	var l ledger
	j, overstays := flow.Memory(), true
	g := flow.New("test")
	flow.Add(g, flow.Task[thing]{
		Name: "a",
		Run: flow.Do(func(ctx context.Context, say flow.Say) (thing, error) {
			say("2 of 3 servers exist")
			if !overstays {
				l.add("a")
				return thing{}, nil
			}
			<-ctx.Done()
			<-time.After(within) // does not follow
			return thing{}, ctx.Err()
		}),
		Deadline: within,
	})
	_, err := g.Run(t.Context(), flow.Options{Journal: j, Deadline: within, Grace: enough})
	errorAs[*flow.RunDeadlineError](t, err)
	if errors.Is(err, flow.ErrInterrupted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	for _, say := range []string{"within its deadline of 300ms", "a (2 of 3 servers exist)"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("error %q does not say %q", err, say)
		}
	}
	overstays = false
	mustRun(t, g, flow.Options{Journal: j, Deadline: within})
	wantLines(t, l.take(), "a")
}
