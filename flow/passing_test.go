package flow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// A Verify that cannot answer is asked again where the error may pass: not for any other error, not for longer than a
// few seconds, and not once the run is stopped.
func TestVerifyIsAskedAgain(t *testing.T) {
	passing, other := errors.New("connection refused"), errors.New("forbidden")
	for name, c := range map[string]struct {
		answers  []flow.Verdict // the last one is repeated
		accepts  bool           // Options.Passing is set
		stop     time.Duration  // of the run; 0: it is not stopped
		asked    int
		within   time.Duration
		complete bool
	}{
		"it passes": {answers: []flow.Verdict{flow.Unknown(passing), flow.Unknown(passing), flow.Holds()},
			accepts: true, asked: 3, within: 2 * time.Second, complete: true},
		"gone in the end": {answers: []flow.Verdict{flow.Unknown(passing), flow.Gone("deleted")},
			accepts: true, asked: 2, within: time.Second, complete: true},
		"it does not pass": {answers: []flow.Verdict{flow.Unknown(passing)},
			accepts: true, asked: 5, within: 8 * time.Second},
		"another error": {answers: []flow.Verdict{flow.Unknown(other), flow.Holds()}, accepts: true, asked: 1},
		"no error may":  {answers: []flow.Verdict{flow.Unknown(passing), flow.Holds()}, asked: 1},
		"the run is stopped": {answers: []flow.Verdict{flow.Unknown(passing)},
			accepts: true, stop: 2 * time.Second, asked: 3, within: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l ledger
				asked := 0
				task := l.task("a")
				task.Verify = func(context.Context, thing) flow.Verdict {
					asked++
					return c.answers[min(asked, len(c.answers))-1]
				}
				g := flow.New("again")
				flow.Add(g, task)
				journal := flow.Memory()
				if _, err := g.Run(t.Context(), flow.Options{Journal: journal}); err != nil {
					t.Fatal(err)
				}
				ctx := t.Context()
				if c.stop > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.stop)
					defer cancel()
				}
				var said []string
				o := flow.Options{Journal: journal, Observe: func(e flow.Event) {
					if e.Kind == flow.StepProgress {
						said = append(said, e.Message)
					}
				}}
				if c.accepts {
					o.Passing = func(err error) bool { return errors.Is(err, passing) }
				}
				began := time.Now()
				_, err := g.Run(ctx, o)
				if (err == nil) != c.complete || asked != c.asked || time.Since(began) > c.within {
					t.Errorf("asked %d times within %s: %v", asked, time.Since(began), err)
				}
				if unanswered := (*flow.UnverifiableError)(nil); c.stop > 0 != errors.Is(err, flow.ErrInterrupted) ||
					!c.complete && c.stop == 0 && !errors.As(err, &unanswered) {
					t.Errorf("it ended with %v", err)
				}
				if c.asked > 1 && !strings.Contains(strings.Join(said, "\n"), "verifying it again: connection refused") {
					t.Errorf("the events say %q", said)
				}
			})
		})
	}
}
