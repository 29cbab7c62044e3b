package operations

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/replace"
	"github.com/slipway-k8s/slipway/internal/session"
)

// ReplaceMachine replaces a Machine of the control plane.
func ReplaceMachine(ctx context.Context, s *session.Session, machine string,
	ask session.Questions) (done replace.Replacement, err error) {
	if err := s.RefuseOperation(ctx); err != nil {
		return done, err
	}
	if err := s.ExamineFor(ctx, doctor.ForServer); err != nil {
		return done, err
	}
	replacer := replace.NewReplacer(s.Cfg.Config, s.Tools)
	flaw, err := replacer.Flaw(ctx, func(string, ...any) {})
	if err != nil {
		return done, err
	}
	if flaw != "" {
		s.Hub.Note("it may never end: %s", flaw)
	}
	if err := confirmRisk(ctx, s, "replace-machine", flaw, ask); err != nil {
		return done, err
	}
	err = s.Hub.Task("replace-machine", "a control plane machine in the place of "+machine, func(say flow.Say) (err error) {
		done, err = replacer.Replace(ctx, say, machine)
		return err
	})
	if unknown, ok := errors.AsType[*replace.UnknownMachineError](err); ok {
		return done, &usage.Error{Err: unknown}
	}
	if err == nil {
		s.Hub.Note("%s", done)
	}
	return done, err
}
