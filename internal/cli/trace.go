package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/telemetry"
	"github.com/slipway-k8s/slipway/internal/text"
)

// trace begins to send spans, where the environment names a collector.
func (r *running) trace() {
	targets := r.asked
	if len(targets) == 0 {
		targets = []string{targetBootstrap}
	}
	tracer, err := telemetry.Start(r.environment, telemetry.Run{
		ID: r.id, Name: "run " + strings.Join(targets, " "), Cluster: r.cfg.ClusterName, World: r.world(), Version: version(),
	})
	if err != nil {
		r.hub.Note("no spans are sent: %v", err)
	}
	if tracer == nil {
		return
	}
	r.tracer = tracer
	r.hub.Displays = append(r.hub.Displays, traceDisplay{tracer, r.stderr, r.hide})
}

// traceDisplay makes spans of a run's events.
type traceDisplay struct {
	tracer *telemetry.Tracer
	stderr io.Writer
	hide   *redact.Redactor
}

func (d traceDisplay) Event(e flow.Event) {
	switch e.Kind {
	case flow.StepVerifying, flow.StepStarted:
		d.tracer.StepBegan(e.Step, e.Time, e.Attempt, e.Message)
	case flow.StepProgress:
		d.tracer.StepSaid(e.Step, e.Time, e.Message)
	case flow.StepDone, flow.StepReused, flow.StepFailed, flow.StepInterrupted:
		d.tracer.StepEnded(e.Step, e.Time, strings.TrimPrefix(string(e.Kind), "step-"), e.Err)
	case flow.RunFinished:
		d.tracer.RunEnded(e.Err)
	}
}

// close sends what is left. It takes seconds at most, and is no failure of the run's.
func (d traceDisplay) Close() {
	if err := d.tracer.End(); err != nil {
		fmt.Fprintln(d.stderr, "note:", text.Printable(d.hide.Text(err.Error())))
	}
}

// watchCalls is the recorder's Watch; nil where no spans are sent.
func (r *running) watchCalls() func(context.Context, effect.Seen) func(int, error) {
	if r.tracer == nil {
		return nil
	}
	return func(_ context.Context, s effect.Seen) func(int, error) {
		ended := r.tracer.Call(telemetry.Call{
			Step: s.Step, World: string(s.World), Verb: s.Verb, Object: s.Object, Method: s.Method, RPC: s.RPC, Scheme: s.Scheme, Host: s.Host, Path: s.Path,
		})
		return func(status int, err error) {
			if err != nil { // it may repeat what was sent
				err = errors.New(r.hide.Text(err.Error()))
			}
			ended(status, err)
		}
	}
}
