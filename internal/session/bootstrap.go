package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/steps"
)

// Questions are what a run asks its operator. Consent and Backup are not asked if they are nil.
type Questions struct {
	// Consent gets what the run would do, where that is something. Its error ends the run, which has changed nothing.
	Consent func(context.Context, forecast.Forecast) error
	// Backup offers a backup before something that cannot be undone. Its error ends the run.
	Backup func(ctx context.Context, danger string) error
	// Confirm asks for a word before an operation deletes or replaces something. If nil, the operation is refused unless
	// Yes is set.
	Confirm func(ctx context.Context, question, want string) error
}

// Confirm asks a question, unless Yes answers it. If no answer is possible, the error begins with what.
func (s *Session) Confirm(ctx context.Context, ask Questions, what, question, want string) error {
	switch {
	case s.Yes:
		return nil
	case ask.Confirm == nil && s.Caller.Program:
		return usage.Errorf("%s: set Options.Yes, or Options.Confirm", what)
	case ask.Confirm == nil:
		return usage.Errorf("%s, and the standard input is no terminal: --yes answers beforehand, --dry-run only says what "+
			"it would do", what)
	}
	return ask.Confirm(ctx, question, want)
}

// OfferBackup has a backup offered before something that cannot be undone.
func (s *Session) OfferBackup(ctx context.Context, ask Questions, danger string) error {
	if s.Yes || ask.Backup == nil {
		return nil
	}
	return ask.Backup(ctx, danger)
}

// Result is the result of a run of steps.
type Result struct {
	Journal flow.Journal // of the steps
	Report  *flow.Report
}

// Plan plans the bootstrap with the session's tools: once in a run, so that what was agreed to is what runs.
func (s *Session) Plan() (planning.Bootstrap, error) {
	b, err := planning.New(s.Cfg.Config, s.Tools)
	if err != nil {
		return b, &usage.Error{Err: err}
	}
	return b, nil
}

// Bootstrap checks what can be checked before a run, asks, and runs the targets of the session in plan b.
func (s *Session) Bootstrap(ctx context.Context, b planning.Bootstrap, ask Questions) (Result, error) {
	targets, err := s.targetsNow(ctx, b, s.Journal())
	if err != nil {
		return Result{}, err
	}
	if s.Cfg.ProviderRepository != s.configured.ProviderRepository { // the lab has decided where the schemas are
		if err := CheckFiles(ctx, b, targets); err != nil {
			return Result{}, err
		}
	}
	for _, check := range []func() error{
		func() error { return s.checkBudget(b, targets) },
		func() error { return s.refuseSecondRun(ctx) },
		func() error { return s.compareWithCluster(ctx, b) },
		func() error { return s.examine(ctx, b, targets) },
		func() error {
			return s.Agree(ctx, ask, func(f *forecast.Forecast) error { return s.predict(ctx, f, b, s.Folder) })
		},
		func() error { return s.refuseRun(ctx, b, targets) },
	} {
		if err := check(); err != nil {
			return Result{}, err
		}
	}
	if slices.Contains(s.Targets, b.Plan.Pivot.Name()) {
		if err := s.OfferBackup(ctx, ask, "a pivot cannot be taken back once it has deleted something"); err != nil {
			return Result{}, err
		}
	}
	if err := s.ProvideKubernetes(ctx, s.Cfg.KubernetesVersion); err != nil {
		return Result{}, err
	}
	return s.runSteps(ctx, b, targets)
}

// targetsNow are the steps that the session's targets mean, as far as the journal says that the cluster has come: once
// it manages itself, the target bootstrap means what can still be run of it.
func (k Cluster) targetsNow(ctx context.Context, b planning.Bootstrap, j flow.Journal) ([]string, error) {
	managed, err := b.Plan.PivotPassed(ctx, j)
	if err != nil {
		return nil, err
	}
	return ResolveTargets(k.Targets, b.Plan, managed)
}

// refuseSecondRun refuses a run while another one has the lock, before anything is examined or asked. The graph takes
// the lock again, and keeps it.
func (s *Session) refuseSecondRun(ctx context.Context) error {
	unlock, err := s.Journal().Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the journal: %w", err)
	}
	return unlock()
}

// compareWithCluster names each value of the configuration that the cluster does not have, and refuses a run that asks
// for a change which it would not make. Nothing was changed then.
func (s *Session) compareWithCluster(ctx context.Context, b planning.Bootstrap) error {
	words := append([]string{}, s.Targets...)
	found := forecast.Compare(ctx, b, s.Journal(), s.Cfg, words, s.Unfinished)
	found.WithoutSecrets(s.Caller.Hide)
	if found.Applies { // the steps do not: apply comes before them, and what it has left is refused
		found.Applies, found.Refused = false, len(changes.RequestedDeviations(found.Deviations)) > 0
	}
	if !found.Refused {
		if found.Uncompared != "" {
			s.Hub.Note("%s", forecast.UncomparedHead+found.Uncompared)
		}
		for _, d := range found.Deviations {
			s.Hub.Note("%s", d)
		}
		return nil
	}
	lines := append(found.Lines(),
		"nothing was changed; a single step (access, cilium, image and others) can still be run")
	return usage.Errorf("%s", strings.Join(lines, "\n"))
}

// Agree asks the operator for consent to what foresee predicts, where something would change. In the lab, where nothing
// costs anything, and with Yes, nothing is asked.
func (s *Session) Agree(ctx context.Context, ask Questions, foresee func(*forecast.Forecast) error) error {
	s.agreed = nil // it is for one run
	if s.Lab || s.Yes || ask.Consent == nil {
		return nil
	}
	f := forecast.Forecast{Cluster: s.Cfg.ClusterName, Environment: s.Environment(), State: string(s.Folder)}
	if err := s.Hub.Task("plan", "what is to be done", func(flow.Say) error { return foresee(&f) }); err != nil {
		return err
	}
	if !f.Changes() {
		return nil
	}
	if err := ask.Consent(ctx, f); err != nil {
		return err
	}
	s.agreed = f.Agreed()
	return nil
}

// refuseRun returns an error if a step of the run would refuse to work, before the first one changes anything.
func (s *Session) refuseRun(ctx context.Context, b planning.Bootstrap, targets []string) error {
	err := b.Refusals(ctx, s.Journal(), targets)
	if _, refused := errors.AsType[*planning.RefusedError](err); refused {
		return usage.Errorf("%w\nnothing was changed", err)
	}
	if err != nil {
		s.Hub.Note("whether a step of the run needs consent is not known yet, and it refuses if so: %v", err)
	}
	return nil
}

// runSteps runs the graph.
func (s *Session) runSteps(ctx context.Context, b planning.Bootstrap, targets []string) (Result, error) {
	recorded := s.Journal()
	journal := redact.Journal{Hide: s.Caller.Hide, Journal: lockedJournal{recorded, func(ctx context.Context) error {
		if err := s.RefuseDuringRecovery(); err != nil {
			return err
		}
		if err := b.Plan.RemovePivotSecrets(); err != nil {
			return err
		}
		return changes.KeepSources(ctx, b.Tools, b.Sources, recorded)
	}}}
	s.expect(ctx, b.Plan, targets)
	report, err := b.Plan.Graph.Run(ctx, flow.Options{
		Journal: journal, Run: s.ID, Targets: targets, Parallel: s.Parallel,
		Deadline: s.Cfg.BootstrapTimeout.D(), Observe: s.Hub.Observe,
		Passing: kube.Unwell,
	})
	result := Result{Journal: journal, Report: report}
	if errors.Is(err, flow.ErrInterrupted) {
		return result, err
	}
	if sealed, ok := errors.AsType[*flow.SealedError](err); ok { // running the same again would come to the same
		return result, s.adviseOnSealed(err, sealed)
	}
	if err != nil {
		return result, s.resumable(err)
	}
	return result, nil
}

// resumable says of a run that failed what is kept, and how to resume it.
func (s *Session) resumable(err error) error {
	return fmt.Errorf("%w\nwhat is done is kept in %s; once the cause is removed, the same command resumes; log: %s",
		reasonsOnce(err), s.Folder, s.Files.Log.Name())
}

// TargetRefused reports whether a target was refused, and nothing run. Otherwise a run has found that what a sealed
// step made is gone.
func TargetRefused(e *flow.SealedError) bool { return e.Step != e.By }

// adviseOnSealed says what can be done about a step that must not be run a second time.
func (s *Session) adviseOnSealed(err error, e *flow.SealedError) error {
	if TargetRefused(e) {
		return fmt.Errorf("%w\nto continue from there: %s\nto fetch kubeconfig and talosconfig again: %s\nto look: %s",
			err, s.Caller.Command(TargetAll), s.Caller.Command("access"), s.Caller.Command("status"))
	}
	return fmt.Errorf("%w\nwhat is done is kept in %s; log: %s\nwhich disaster it is, and what to type: %s",
		reasonsOnce(err), s.Folder, s.Files.Log.Name(), s.Caller.Command("restore", "--diagnose"))
}

// expect shows the steps that the journal expects to run, if it can be read.
func (s *Session) expect(ctx context.Context, plan *steps.Plan, targets []string) {
	foreseen, err := plan.Graph.Predict(ctx, s.Journal(), targets, false)
	if err != nil {
		return
	}
	took := runs.ReadDurations(s.Folder, s.Environment())
	var all []ExpectedStep
	for _, f := range foreseen {
		one := ExpectedStep{Name: f.Name}
		switch f.Action {
		case flow.ActionSkip:
			continue
		case flow.ActionRun, flow.ActionMayRun:
			one.Takes, one.Recorded = took.Of(f.Name)
		}
		all = append(all, one)
	}
	s.Hub.Expect(all)
}

// AbortPivot reverts a pivot that was begun, with the journal locked.
func (s *Session) AbortPivot(ctx context.Context) error {
	b, err := s.Plan()
	if err != nil {
		return err
	}
	return s.Locked(ctx, func(ctx context.Context) error {
		return s.Hub.Task("pivot --abort", "the management cluster manages the cluster again, as before the pivot",
			func(say flow.Say) error { return b.Plan.AbortPivot(ctx, say) })
	})
}
