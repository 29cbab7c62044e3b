package session

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/telemetry"
	"github.com/slipway-k8s/slipway/internal/base/text"
)

// startTracer begins to send spans, where the environment names a collector; else it returns nil.
func (s *Session) startTracer() *telemetry.Tracer {
	targets := s.Targets
	if len(targets) == 0 {
		targets = []string{TargetBootstrap}
	}
	tracer, err := telemetry.Start(s.Caller.Environment, telemetry.Run{
		ID: s.ID, Name: "run " + strings.Join(targets, " "), Cluster: s.Cfg.ClusterName, Environment: s.Environment(),
		Version: Version(),
	})
	if err != nil {
		s.Hub.Note("no spans are sent: %v", err)
	}
	if tracer != nil {
		s.Hub.Displays = append(s.Hub.Displays, traceDisplay{tracer, s.Caller})
	}
	return tracer
}

// traceDisplay makes spans of a run's events.
type traceDisplay struct {
	tracer *telemetry.Tracer
	caller *Caller
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
		d.caller.Note("%s", text.Printable(err.Error()))
	}
}

// watchCalls sends a span of each call.
func watchCalls(tracer *telemetry.Tracer, hide *redact.Redactor) func(context.Context, effect.Seen) func(int, error) {
	return func(_ context.Context, s effect.Seen) func(int, error) {
		ended := tracer.Call(s)
		return func(status int, err error) {
			if err != nil { // it may repeat what was sent
				err = errors.New(hide.Text(err.Error()))
			}
			ended(status, err)
		}
	}
}
