package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// DoctorTask is the name of the doctor's look before a run, in its events.
const DoctorTask = "doctor"

// FailedChecksError says how many of the doctor's checks failed.
type FailedChecksError struct{ Failed int }

func (e *FailedChecksError) Error() string {
	if e.Failed == 1 {
		return "1 check of the doctor failed"
	}
	return fmt.Sprintf("%d checks of the doctor failed", e.Failed)
}

// FailedChecks is the error of findings of which some failed: of usage, where a file of the operator is what failed.
func FailedChecks(found []doctor.Finding) error {
	n := doctor.Count(found, doctor.Failed)
	if n == 0 {
		return nil
	}
	err := error(&FailedChecksError{n})
	if slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Verdict == doctor.Failed && f.Input }) {
		err = &usage.Error{Err: err}
	}
	return err
}

// Doctor returns the doctor of a plan, with what the journal of the state folder knows.
func Doctor(ctx context.Context, b planning.Bootstrap, state statedir.Dir) (*doctor.Doctor, error) {
	reservation, _, err := flow.Restore(ctx, state.Journal(), b.Plan.Reservation)
	if err != nil {
		return nil, err
	}
	passed, err := b.Plan.PivotPassed(ctx, state.Journal())
	if err != nil {
		return nil, err
	}
	return doctor.New(b.Cfg, b.Tools, b.Sources).Recorded(reservation.ID).SelfManaged(passed), nil
}

// WithoutSecrets takes secrets out of what servers said.
func WithoutSecrets(hide *redact.Redactor, found []doctor.Finding) []doctor.Finding {
	for i, f := range found {
		found[i].Reason = text.Printable(hide.Text(f.Reason))
	}
	return found
}

// spending are the steps that make what costs money.
func spending(plan *steps.Plan) []string {
	return []string{plan.Image.Name(), plan.Cluster.Name(), plan.ControlPlane.Name()}
}

// examine has the doctor look before a real run whose journal says that it makes what costs money. Before any other run
// that may change something it looks at the token alone, which the run may write in the place of another one. A failed
// check ends the run; an unknown one is noted.
func (s *Session) examine(ctx context.Context, b planning.Bootstrap, targets []string) error {
	if s.Lab || s.SkipDoctor {
		return nil
	}
	foreseen, err := b.Plan.Graph.Predict(ctx, s.Journal(), targets, false)
	if err != nil {
		return nil // the run itself says it better
	}
	var would []string
	changes := false
	for _, f := range foreseen {
		if f.Action == flow.ActionRun {
			would = append(would, f.Name)
		}
		changes = changes || f.Action != flow.ActionSkip && !slices.Contains(steps.ReadOnlySteps(), f.Name)
	}
	examiner, err := Doctor(ctx, b, s.Folder)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(would, func(step string) bool { return slices.Contains(spending(b.Plan), step) }):
		return s.examined(ctx, examiner.For(would))
	case changes:
		return s.examined(ctx, examiner.TokenAlone())
	}
	return nil
}

// ExamineFor has the doctor look before an operation that makes servers outside of the graph: doctor.ForServer,
// doctor.ForRestore.
func (s *Session) ExamineFor(ctx context.Context, what string) error {
	return s.examineWith(ctx, func(d *doctor.Doctor) *doctor.Doctor { return d.For([]string{what}) })
}

// ExamineToken has the doctor look at the token alone before an operation that writes it in the place of another one.
func (s *Session) ExamineToken(ctx context.Context) error {
	return s.examineWith(ctx, (*doctor.Doctor).TokenAlone)
}

func (s *Session) examineWith(ctx context.Context, narrow func(*doctor.Doctor) *doctor.Doctor) error {
	if s.Lab || s.SkipDoctor {
		return nil
	}
	b, err := s.Plan()
	if err != nil {
		return err
	}
	return s.examined(ctx, narrow(doctor.New(b.Cfg, b.Tools, b.Sources)))
}

// examined runs the doctor's checks, notes what is not known, and returns an error if one failed.
func (s *Session) examined(ctx context.Context, examiner *doctor.Doctor) error {
	err := s.Hub.Task(DoctorTask, "before anything is created", func(flow.Say) error {
		found := WithoutSecrets(s.Caller.Hide, examiner.Examine(ctx))
		for _, f := range found {
			switch f.Verdict {
			case doctor.Failed:
				s.Hub.Note("doctor: %s failed: %s; %s", f.Check, f.Reason, f.WayOut)
			case doctor.Unknown:
				s.Hub.Note("doctor: %s is not known: %s", f.Check, f.Reason)
			}
		}
		return FailedChecks(found)
	})
	if err != nil {
		skip := "--skip-doctor"
		if s.Caller.Program {
			skip = "Options.SkipDoctor"
		}
		return fmt.Errorf("%w: nothing was created; %s runs without these checks", err, skip)
	}
	return nil
}
