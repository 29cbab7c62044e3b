package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/differences"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/local"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// runTargets runs targets of the graph.
func runTargets(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	targets, err := validateOffline(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	if err := checkBudget(c, cfg, targets, a.Options.Parallel); err != nil {
		return err
	}
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	if err := refuseDuringRecovery(c, state); err != nil {
		return err
	}
	return withRun(ctx, c, a, cfg, func(ctx context.Context, r *running) error {
		if err := connect(ctx, r); err != nil {
			return err
		}
		return runConnected(ctx, r, a, cfg)
	})
}

// runConnected checks what can be checked before a run, asks for consent, and runs the targets. The configuration
// is the one before the lab decided a part of it.
func runConnected(ctx context.Context, r *running, a arguments, cfg settings.Configuration) error {
	if err := refuseOtherProject(ctx, r); err != nil {
		return err
	}
	if a.Options.Prune {
		return pruneImages(ctx, r)
	}
	if a.Options.Abort {
		return abortPivot(ctx, r)
	}
	b, err := planning.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	targets, err := targetsNow(ctx, b.Plan, r.journal(), r.asked)
	if err != nil {
		return err
	}
	if err := checkFilesAgain(ctx, r, cfg, targets); err != nil {
		return err
	}
	if err := refuseSecondRun(ctx, r.journal()); err != nil {
		return err
	}
	if err := compareWithCluster(ctx, r, b); err != nil {
		return err
	}
	if err := examine(ctx, r, targets); err != nil {
		return err
	}
	if err := agree(ctx, r); err != nil {
		return err
	}
	if err := refuseRun(ctx, r, targets); err != nil {
		return err
	}
	if slices.Contains(a.Targets, targetPivot) {
		if err := offerBackup(ctx, r, a, "a pivot cannot be taken back once it has deleted something"); err != nil {
			return err
		}
	}
	if err := provideKubernetes(ctx, r, r.cfg.KubernetesVersion); err != nil {
		return err
	}
	return runSteps(ctx, r, targets)
}

// refuseRun refuses a run of which a step would refuse its work, before the first one changes anything.
func refuseRun(ctx context.Context, r *running, targets []string) error {
	b, err := planning.New(r.cfg.Config, r.tools) // with what the operator has agreed to since
	if err != nil {
		return &usage.Error{Err: err}
	}
	err = b.Refusals(ctx, r.journal(), targets)
	if _, refused := errors.AsType[*planning.RefusedError](err); refused {
		return usage.Errorf("%w\nnothing was changed", err)
	}
	if err != nil {
		r.hub.Note("whether a step of the run needs consent is not known yet, and it refuses if so: %v", err)
	}
	return nil
}

// refuseSecondRun refuses a run while another one has the lock, before anything is examined or asked. The graph takes
// the lock again, and keeps it.
func refuseSecondRun(ctx context.Context, journal flow.Journal) error {
	unlock, err := journal.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the journal: %w", err)
	}
	return unlock()
}

// abortPivot puts a pivot back, with the journal locked, so that no run is at
// work on the same.
func abortPivot(ctx context.Context, r *running) (err error) {
	plan, err := steps.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	unlock, err := r.journal().Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the journal: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return r.hub.Task("pivot --abort", "the management cluster manages the cluster again, as before the pivot",
		func(say flow.Say) error {
			return plan.AbortPivot(ctx, say)
		})
}

// validateOffline plans with nothing behind it, so that mistakes in the
// configuration and its files, and unknown targets, are found before anything
// is made.
func validateOffline(ctx context.Context, c *console, a arguments, cfg settings.Configuration) ([]string, error) {
	tellLiterals(c, cfg)
	if err := refuseInLab(a, cfg); err != nil {
		return nil, err
	}
	b, err := planOffline(c, cfg)
	if err != nil {
		return nil, err
	}
	targets, err := resolveTargets(a.Targets, b.Plan, false)
	if err != nil || a.Options.Prune || a.Options.Abort { // these two apply no file
		return targets, err
	}
	return targets, checkFiles(ctx, b, targets)
}

// refuseInLab refuses a rehearsal of what cannot become ready in a lab.
func refuseInLab(a arguments, cfg settings.Configuration) error {
	if !a.Options.Lab {
		return nil
	}
	err := cfg.NotInLab(settings.DefaultConfigFile, func(values string) string { return "--lab " + values })
	if err != nil {
		return &usage.Error{Err: err}
	}
	return nil
}

// offlineTools are tools with nothing behind them.
func offlineTools(cfg settings.Configuration) platform.Tools {
	tools := platform.Tools{Overrides: cfg.Overrides}
	if cfg.ManagementProvider() == config.ManagementLocal {
		tools.Management = local.New(lab.LocalManagement{}, nil)
	} else {
		tools.Management = kind.NewProvider(cfg.Config, platform.Files{}, false, io.Discard, nil)
	}
	return tools
}

// planOffline is the plan with nothing behind it.
func planOffline(c *console, cfg settings.Configuration) (planning.Bootstrap, error) {
	b, err := planning.New(cfg.Config, offlineTools(cfg))
	if err == nil {
		err = checks.Values(b.Cfg, b.Sources)
	}
	if err != nil {
		return b, &usage.Error{Err: err}
	}
	return b, nil
}

// labDir is the lab's folder.
func labDir(c *console, o options, state statedir.Dir) string {
	switch {
	case o.LabDir == "":
		return state.Lab()
	case filepath.IsAbs(o.LabDir):
		return filepath.Clean(o.LabDir)
	}
	return filepath.Join(c.workDir, o.LabDir)
}

func newLab(c *console, o options, state statedir.Dir) *lab.Lab {
	dir := labDir(c, o, state)
	return &lab.Lab{
		Dir: dir, Latency: o.LabLatency, API: o.LabAPI, Images: labImages(c, o), Until: o.LabUntil,
		Client:  lab.NewClient(dir),
		WorkDir: c.workDir, Environment: c.environment,
		CommandLine: func(target ...string) string { return commandLine(c, target...) },
	}
}

// newLabWith is newLab for what may start the lab: with where its programs come from.
func newLabWith(c *console, o options, cfg settings.Configuration, state statedir.Dir) (*lab.Lab, error) {
	if err := findLabImages(c, o); err != nil {
		return nil, err
	}
	programs, err := lab.NewPrograms(cfg.Config, c.workDir, cfg.Overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	l := newLab(c, o, state)
	l.Programs = programs
	return l, nil
}

// runSteps runs the graph and sums up.
func runSteps(ctx context.Context, r *running, targets []string) error {
	b, err := planning.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	plan, recorded := b.Plan, r.journal()
	journal := redact.Journal{Hide: r.console.hide, Journal: lockedJournal{recorded, func(ctx context.Context) error {
		if err := refuseDuringRecovery(r.console, r.state); err != nil {
			return err
		}
		if err := plan.RemovePivotSecrets(); err != nil {
			return err
		}
		return differences.KeepSources(ctx, b.Tools, b.Sources, recorded)
	}}}
	expect(ctx, r, plan, targets)
	report, err := plan.Graph.Run(ctx, flow.Options{
		Journal: journal, Run: r.id, Targets: targets, Parallel: r.options.Parallel,
		Deadline: r.cfg.BootstrapTimeout.D(), Observe: r.hub.Observe,
	})
	r.hub.Close()
	if errors.Is(err, flow.ErrInterrupted) {
		return err
	}
	if sealed, ok := errors.AsType[*flow.SealedError](err); ok { // running the same again would come to the same
		return adviseOnSealed(r, err, sealed)
	}
	if err != nil {
		return fmt.Errorf("%w\nwhat is done is kept in %s; run the same command again to resume; log: %s",
			reasonsOnce(err), r.state, r.files.Log.Name())
	}
	return conclude(ctx, r, journal, report, outputs{
		management: plan.Management, clean: plan.Clean, cluster: plan.Cluster, kubeconfig: plan.Kubeconfig,
		talosconfig: plan.Talosconfig, nodes: plan.Nodes, workers: plan.WaitWorkers, access: plan.Access,
	})
}

// adviseOnSealed says what can be done about a step that must not be run a second time.
func adviseOnSealed(r *running, err error, e *flow.SealedError) error {
	if refused(e) {
		return fmt.Errorf("%w\nto continue from there: %s\nto fetch kubeconfig and talosconfig again: %s\nto look: %s",
			err, commandLine(r.console, targetAll), commandLine(r.console, targetAccess), commandLine(r.console, targetStatus))
	}
	return fmt.Errorf("%w\nwhat is done is kept in %s; log: %s\nwhich disaster it is, and what to type: %s",
		reasonsOnce(err), r.state, r.files.Log.Name(), commandLine(r.console, "restore", "--diagnose"))
}

// expect shows the steps that the journal expects to run, if it can be read.
func expect(ctx context.Context, r *running, plan *steps.Plan, targets []string) {
	foreseen, err := plan.Graph.Predict(ctx, r.journal(), targets, false)
	if err != nil {
		return
	}
	took := runs.ReadDurations(r.state, r.environment())
	var all []ui.ExpectedStep
	for _, f := range foreseen {
		one := ui.ExpectedStep{Name: f.Name}
		switch f.Action {
		case flow.ActionSkip:
			continue
		case flow.ActionRun, flow.ActionMayRun:
			one.Takes, one.Recorded = took.Of(f.Name)
		}
		all = append(all, one)
	}
	r.hub.Expect(all)
}
