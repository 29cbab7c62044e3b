package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/factory"
	"github.com/slipway-k8s/slipway/internal/kind"
	"github.com/slipway-k8s/slipway/internal/lab"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/runs"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/statedir"
	"github.com/slipway-k8s/slipway/internal/telemetry"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// runTargets runs targets of the graph.
func runTargets(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	targets, err := rehearseOnPaper(ctx, c, a, cfg)
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
	var token platform.Secret
	if !a.Options.Lab {
		if token, err = cfg.Token(ctx, c.environment); err != nil {
			return err
		}
		c.hide.Learn(token.Reveal())
	}
	r, err := beginRun(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	defer r.end()
	if a.Options.Lab {
		err = r.inLab(ctx)
	} else {
		r.atHetzner(token)
	}
	if errors.Is(err, flow.ErrInterrupted) {
		return r.interrupted(err)
	}
	if err != nil {
		return err
	}
	if err := refuseOtherProject(ctx, r); err != nil {
		return err
	}
	if a.Options.Prune {
		return pruneImages(ctx, r)
	}
	if a.Options.Abort {
		return abortPivot(ctx, r)
	}
	plan, err := steps.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	if targets, err = targetsNow(ctx, plan, r.journal(), r.asked); err != nil {
		return err
	}
	if err := checkFilesAgain(ctx, r, cfg, targets); err != nil {
		return err
	}
	if err := r.refuseBeside(ctx); err != nil {
		return err
	}
	if err := compareWithCluster(ctx, r, plan); err != nil {
		return err
	}
	if err := examine(ctx, r, targets); err != nil {
		return err
	}
	if err := agree(ctx, r); err != nil {
		return err
	}
	if slices.Contains(a.Targets, targetPivot) {
		if err := offerBackup(ctx, r, a, "a pivot cannot be taken back once it has deleted something"); err != nil {
			return err
		}
	}
	return runSteps(ctx, r, targets)
}

// refuseBeside ends a run beside another one at once, before anything is examined
// or asked. The graph takes the lock again, and keeps it.
func (r *running) refuseBeside(ctx context.Context) error {
	unlock, err := r.journal().Lock(ctx)
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
	return r.hub.Task("pivot --abort", "the management cluster goes on, as before the pivot", func(say flow.Say) error {
		return plan.AbortPivot(ctx, say)
	})
}

// rehearseOnPaper plans with nothing behind it, so that mistakes in the
// configuration and its files, and unknown targets, are found before anything
// is made.
func rehearseOnPaper(ctx context.Context, c *console, a arguments, cfg settings.Configuration) ([]string, error) {
	plan, err := planOnPaper(c, cfg)
	if err != nil {
		return nil, err
	}
	targets, err := resolveTargets(a.Targets, plan, false)
	if err != nil || a.Options.Prune || a.Options.Abort { // these two apply no file
		return targets, err
	}
	return targets, checkFiles(ctx, plan, targets)
}

// planOnPaper is the plan with nothing behind it.
func planOnPaper(c *console, cfg settings.Configuration) (*steps.Plan, error) {
	plan, err := steps.New(cfg.Config, platform.Tools{
		Management: kind.NewProvider(cfg.Config, platform.Files{}, false, io.Discard, nil),
		Overrides:  cfg.Overrides,
	})
	if err == nil {
		err = plan.CheckValues()
	}
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return plan, nil
}

// running is one run, from its folder to its summary.
type running struct {
	*console
	options options
	cfg     settings.Configuration
	state   statedir.Dir
	id      string
	asked   []string // the targets, as they were written
	files   *statedir.RunFiles
	effects *effect.Recorder
	hub     *ui.Hub
	tracer  *telemetry.Tracer // nil: no spans are sent
	log     io.Writer
	tools   platform.Tools
	began   time.Time
	before  []flow.StepReport // work before the graph's
}

// beginRun takes the state folder and opens what the run writes to.
func beginRun(ctx context.Context, c *console, a arguments, cfg settings.Configuration) (*running, error) {
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return nil, err
	}
	r := &running{
		console: c, options: a.Options, cfg: cfg, state: state,
		began: time.Now(), asked: a.Targets,
		id: fmt.Sprintf("%s-%d", time.Now().UTC().Format("20060102T150405.000Z"), os.Getpid()),
	}
	if err := findLabImages(c, a.Options); err != nil {
		return nil, err
	}
	if a.Options.Lab { // before anything is created
		if err := newLab(c, a.Options, state).Possible(ctx); err != nil {
			return nil, err
		}
	}
	outliveReaders()
	c.hide.Learn(cfg.Passwords()...)
	var notes []string
	err = r.state.Claim(ctx, cfg.ClusterName, r.world(), func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) })
	if err != nil {
		return nil, err
	}
	if r.files, err = r.state.OpenRun(r.id); err != nil {
		return nil, err
	}
	r.hub = &ui.Hub{Run: r.id, Hide: c.hide, Displays: []ui.Display{newDisplay(c, a.Options), ui.NewJSONDisplay(r.files.Events)}}
	if r.watch != nil {
		r.hub.Displays = append(r.hub.Displays, r.watch)
	}
	r.log = c.hide.Writer(r.files.Log)
	platform.RedirectLibraryLogs(r.log)
	if line := filesOf(cfg.Overrides); line != "" {
		notes = append(notes, line)
	}
	for _, note := range notes {
		r.hub.Note("%s", note)
	}
	r.tools = commonTools(r.state, cfg, c.environment, r.log)
	r.tools.CommandLine = func(target ...string) string { return commandLine(r.console, target...) }
	r.tools.Consent = a.Options.Yes
	r.tools.ServerTakes = runs.ReadDurations(r.state, r.world()).Server()
	r.keepSetup()
	r.trace()
	r.effects = r.recorder()
	r.tools.Effects = r.effects
	r.tools.Files = r.tools.RecordedFiles()
	return r, nil
}

func (r *running) world() string { return worldOf(r.options) }

func worldOf(o options) string {
	if o.Lab {
		return statedir.WorldLab
	}
	return statedir.WorldHetzner
}

// journal is the state folder's, as long as that is in the run's world.
func (r *running) journal() flow.Journal {
	return statedir.NewRecordedJournal(r.state, r.cfg.ClusterName, r.world(), r.effects)
}

// end gives the streams free.
func (r *running) end() {
	r.effects.Close()
	r.hub.Close()
	if err := r.files.Close(); err != nil {
		fmt.Fprintln(r.stderr, "warning: the run's files may be incomplete:", err)
	}
}

// newDisplay is how stdout wants to see a run.
func newDisplay(c *console, o options) ui.Display {
	switch {
	case o.Output == "json":
		return ui.NewJSONDisplay(c.stdout)
	case c.width() > 0:
		return ui.NewTerminalDisplay(c.stdout, c.size, c.environment["NO_COLOR"] == "")
	default:
		return ui.PlainDisplay{Out: c.stdout}
	}
}

// atHetzner equips the run for the real world.
func (r *running) atHetzner(token platform.Secret) {
	r.tools.Token = token
	r.tools.Factory = factory.Address
	r.tools.Hetzner = hetznerClient(r.environment[settings.EndpointVariable], token, r.effects)
	r.tools.Management = kind.NewProvider(r.cfg.Config, r.tools.Files, r.options.Yes, r.log, r.effects)
	if r.equip != nil {
		r.equip(&r.tools)
	}
}

// inLab brings the lab up and equips the run for it.
func (r *running) inLab(ctx context.Context) error {
	l := newLab(r.console, r.options, r.state)
	l.Client.Record(r.effects)
	wasUp := false
	if _, err := l.Answering(ctx); err == nil {
		wasUp = true
	}
	if wasUp && (r.options.LabLatency != "fast" || r.options.LabImages != "") {
		r.hub.Note("the lab is up already: --lab-latency and --lab-images count when it starts")
	}
	var info lab.Info
	err := r.hub.Task("lab", "the world to rehearse in", func(say flow.Say) (err error) {
		if info, err = l.Up(ctx, say); err != nil {
			return err
		}
		r.hide.Learn(info.Token)
		if info.ImageBuild.Possible {
			return nil
		}
		say("no image can be built in this lab: %s", info.ImageBuild.Reason)
		return prepareImages(ctx, l.Client, r.cfg.Config, say)
	})
	if err != nil {
		return err
	}
	r.before = append(r.before, flow.StepReport{Name: "lab", Outcome: labOutcome(wasUp), Elapsed: time.Since(r.began)})
	cfg, tools, notes, err := enterLab(r.cfg, r.tools, l.Client, info, r.environment)
	if err != nil {
		return err
	}
	if !wasUp { // they do not change while it is
		notes = append(notes, info.Notes...)
	}
	for _, note := range notes {
		r.hub.Note("%s", note)
	}
	r.cfg, r.tools = cfg, tools
	r.keepSetup()
	return nil
}

func labOutcome(wasUp bool) flow.Outcome {
	if wasUp {
		return flow.Reused
	}
	return flow.Ran
}

func newLab(c *console, o options, state statedir.Dir) *lab.Lab {
	dir := state.Lab()
	return &lab.Lab{
		Dir: dir, Latency: o.LabLatency, Images: labImages(c, o), Until: o.LabUntil, Client: lab.NewClient(dir),
		WorkDir: c.workDir, Environment: c.environment, CommandLine: func(target ...string) string { return commandLine(c, target...) },
	}
}

// runSteps runs the graph and sums up.
func runSteps(ctx context.Context, r *running, targets []string) error {
	plan, err := steps.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	recorded := r.journal()
	journal := redact.Journal{Hide: r.hide, Journal: lockedJournal{recorded, func(ctx context.Context) error {
		if err := refuseDuringRecovery(r.console, r.state); err != nil {
			return err
		}
		if err := plan.RemovePivotSecrets(); err != nil {
			return err
		}
		return plan.KeepSources(ctx, recorded)
	}}}
	r.expect(ctx, plan, targets)
	report, err := plan.Graph.Run(ctx, flow.Options{
		Journal: journal, Run: r.id, Targets: targets, Parallel: r.options.Parallel,
		Deadline: r.cfg.BootstrapTimeout.D(), Observe: r.hub.Observe,
	})
	r.hub.Close()
	if errors.Is(err, flow.ErrInterrupted) {
		return r.interrupted(err)
	}
	if sealed, ok := errors.AsType[*flow.SealedError](err); ok { // running the same again would come to the same
		return adviseOnSealed(r, err, sealed)
	}
	if err != nil {
		return fmt.Errorf("%w\nwhat is done is kept in %s; run the same command again to go on; log: %s", reasonsOnce(err), r.state, r.files.Log.Name())
	}
	s, err := summarise(ctx, r, plan, journal, report)
	if err != nil {
		return fmt.Errorf("everything is done, but the summary cannot be made: %w", err)
	}
	return r.tell(s)
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

// expect shows the steps that the run will come to, as the journal has them. That it cannot tell is no reason not to run.
func (r *running) expect(ctx context.Context, plan *steps.Plan, targets []string) {
	foreseen, err := plan.Graph.Predict(ctx, r.journal(), targets, false)
	if err != nil {
		return
	}
	took := runs.ReadDurations(r.state, r.world())
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

// interrupted says what is kept and how to go on, and whatever else went wrong.
func (r *running) interrupted(err error) error {
	var lines []string
	var failed *flow.StepError
	if errors.As(err, &failed) {
		lines = append(lines, failed.Error())
	}
	lines = append(lines, "interrupted: what is done is kept in "+string(r.state)+"; run the same command again to go on")
	if r.options.Lab {
		lines = append(lines, "the lab stays up; to end it: "+commandLine(r.console, "lab", "down"))
	}
	return &interruptedError{text: strings.Join(lines, "\n"), err: err}
}

type interruptedError struct {
	text string
	err  error
}

func (e *interruptedError) Error() string { return e.text }
func (e *interruptedError) Unwrap() error { return e.err }
