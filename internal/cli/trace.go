package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/telemetry"
	"github.com/slipway-k8s/slipway/internal/base/text"
)

// startTracer begins to send spans, where the environment names a collector; else it returns nil.
func startTracer(r *running) *telemetry.Tracer {
	targets := r.asked
	if len(targets) == 0 {
		targets = []string{targetBootstrap}
	}
	tracer, err := telemetry.Start(r.console.environment, telemetry.Run{
		ID: r.id, Name: "run " + strings.Join(targets, " "), Cluster: r.cfg.ClusterName, Environment: r.environment(), Version: version(),
	})
	if err != nil {
		r.hub.Note("no spans are sent: %v", err)
	}
	if tracer != nil {
		r.hub.Displays = append(r.hub.Displays, traceDisplay{tracer, r.console.stderr, r.console.hide})
	}
	return tracer
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

// Close sends the remaining spans, for some seconds at most. That it cannot is no failure of the run.
func (d traceDisplay) Close() {
	if err := d.tracer.End(); err != nil {
		fmt.Fprintln(d.stderr, "note:", text.Printable(d.hide.Text(err.Error())))
	}
}

// watchCalls sends a span of each call.
func watchCalls(tracer *telemetry.Tracer, hide *redact.Redactor) func(context.Context, effect.Seen) func(int, error) {
	return func(_ context.Context, s effect.Seen) func(int, error) {
		ended := tracer.Call(telemetry.Call{
			Step: s.Step, System: string(s.System), Verb: s.Verb, Object: s.Object,
			Method: s.Method, RPC: s.RPC, Scheme: s.Scheme, Host: s.Host, Path: s.Path,
		})
		return func(status int, err error) {
			if err != nil { // it may repeat what was sent
				err = errors.New(hide.Text(err.Error()))
			}
			ended(status, err)
		}
	}
}
