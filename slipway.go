// Package slipway bootstraps a Talos Linux Kubernetes cluster on Hetzner Cloud through Cluster API, or rehearses that
// in the lab, as the command bootstrap does. Open takes the lease of the cluster's state, connects and plans; steps can
// be added to the plan. Run checks what can be checked before a run, asks for consent, and runs the plan. To resume an
// interrupted run, make the same calls again. Open one session at a time in a process: the loggers of Kubernetes'
// libraries, which write to the log of a session, belong to the process.
//
// Besides the options, these variables of the environment are read: HCLOUD_ENDPOINT, GITHUB_TOKEN, the keys of backups
// and of the state (BACKUP_PASSPHRASE, BACKUP_AUTHENTICATION_KEY, STATE_IDENTITY), AWS_* for an S3 store, and OTEL_*.
package slipway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Targets of a run that stand for several steps. The name of a step is a target, too.
const (
	Bootstrap = session.TargetBootstrap // a cluster with all nodes ready
	All       = session.TargetAll       // Bootstrap, and the pivot: the cluster manages itself
)

// Options are the options of a session. Only Token, or Lab, is required.
type Options struct {
	// StateDir is the state folder: journal, kubeconfigs, logs. If empty, it is .slipway/<cluster>. A folder belongs to
	// one cluster, and one run at a time works in it.
	StateDir string
	// Dir is the folder with the operator's own manifests/ and bootstrap/. If empty, the built-in files are used.
	Dir string
	// Lab rehearses in the lab of the state folder. Token is not needed then.
	Lab bool
	// Token is a read-write API token of the Hetzner Cloud project.
	Token platform.Secret
	// Git has the credentials with which Flux reads the Git repository, if it is configured and needs any.
	Git platform.GitAccess
	// Management provides the management cluster. If nil, the configuration names it. Not allowed with Lab.
	Management platform.ManagementProvider
	// Hetzner is the client of the Hetzner API, for tests: its calls are not recorded. If nil, a client with Token is
	// created. Not allowed with Lab.
	Hetzner *hcloud.Client

	// Observe receives every event of the session: of the steps, and of the work before them. Secrets are redacted. The
	// calls come one at a time, and the session waits for each: it must not call the session. Optional.
	Observe func(flow.Event)
	// Progress receives a line for each change of a step, as the command prints them into a pipe. Optional.
	Progress io.Writer
	// Note receives messages outside of any event: from before the session is open, and from Close. Optional.
	Note func(string)
	// Consent is called before Run or Restore changes something at Hetzner, with the plan as the command prints it. Its
	// error ends the run. It is not called in the lab, or with Yes. If nil, the run goes ahead; it still refuses to
	// delete or replace servers.
	Consent func(ctx context.Context, plan string) error
	// Confirm is called before an operation that cannot be undone, or that may never end. It returns nil to agree; want
	// is what a person would have to type. It is not called with Yes. If nil, the operation is refused unless Yes is
	// set.
	Confirm func(ctx context.Context, question, want string) error
	// Yes answers every question beforehand, also those of Destroy, RecoverQuorum and Upgrade: neither Consent nor
	// Confirm is called.
	Yes bool
	// Parallel is the maximum number of steps that run at once. 0: no maximum.
	Parallel int
	// SkipDoctor skips the checks before a run that creates what costs money.
	SkipDoctor bool
}

// Session is an open cluster, for one or more runs and operations. The journal is locked only while one of them works;
// where config.Config.State names a store, the session has the lease of the state until Close. It is not safe for
// concurrent use.
type Session struct {
	// Plan is the plan of the bootstrap. Steps can be added to its graph, and replaced, before Run.
	Plan *steps.Plan

	ctx     context.Context // ends with the lease of the state
	cancel  context.CancelCauseFunc
	session *session.Session
	planned planning.Bootstrap
	options Options
	closed  bool
}

// Result is the result of a run.
type Result struct {
	// Report has the outcome of each step.
	Report *flow.Report

	journal flow.Journal
}

// Open reads the files that the cluster is made from, takes the lease of its state, claims the state folder, connects
// to Hetzner or the lab, which it starts where it is down, and plans the bootstrap. Mistakes in the configuration and
// the files are found before anything is created. A session that was opened has to be closed.
func Open(ctx context.Context, cfg config.Config, o Options) (*Session, error) {
	k, err := cluster(cfg, o)
	if err != nil {
		return nil, err
	}
	if err := k.Validate(ctx); err != nil {
		return nil, redacted(k.Caller.Hide, err)
	}
	s, err := open(ctx, k, o, Bootstrap)
	if err != nil {
		return nil, err
	}
	if err = s.session.CheckProject(ctx); err == nil {
		s.planned, err = s.session.Plan()
	}
	if err != nil {
		return nil, s.end(err)
	}
	s.Plan = s.planned.Plan
	return s, nil
}

// open takes the lease, claims the folder and connects. The session outlives ctx. target is what it is opened for.
func open(ctx context.Context, k session.Cluster, o Options, target string) (*Session, error) {
	if err := k.CheckEnvironment(ctx); err != nil {
		return nil, err
	}
	k.Targets = []string{target}
	access, err := k.ReadAccess(ctx)
	if err != nil {
		return nil, redacted(k.Caller.Hide, err)
	}
	whole, cancel, outlive := interruptible(ctx)
	defer outlive()
	leased, opened, err := k.Open(whole, access, displays(o))
	if err != nil {
		cancel(nil)
		return nil, redacted(k.Caller.Hide, err)
	}
	s := &Session{ctx: leased, cancel: cancel, session: opened, options: o}
	if err := opened.Connect(leased); err != nil {
		return nil, s.end(err)
	}
	return s, nil
}

// interruptible returns a context whose end is an interruption of a run, which can be resumed. It ends with ctx until
// outlive is called.
func interruptible(ctx context.Context) (whole context.Context, cancel context.CancelCauseFunc, outlive func() bool) {
	whole, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return whole, cancel, context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if !errors.Is(cause, flow.ErrInterrupted) {
			cause = fmt.Errorf("%w: %w", flow.ErrInterrupted, cause)
		}
		cancel(cause)
	})
}

// cluster is the cluster of a configuration and options.
func cluster(cfg config.Config, o Options) (k session.Cluster, err error) {
	if err := o.check(); err != nil {
		return k, err
	}
	hide, environment := &redact.Redactor{}, settings.Environ(os.Environ())
	hide.Learn(o.Token.Reveal(), o.Git.Token.Reveal(), o.Git.Key.Reveal())
	for _, name := range child.SecretVariables() {
		hide.Learn(environment[name])
	}
	workDir, err := os.Getwd()
	if err != nil {
		return k, err
	}
	dir := o.Dir
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(workDir, dir)
	}
	k = session.Cluster{
		Caller: &session.Caller{Environment: environment, WorkDir: workDir, Hide: hide, Notes: o.Note, Program: true,
			Memory: &session.Memory{}, Token: o.Token, Git: o.Git, Management: o.Management,
			CommandLine: func(target ...string) string { return commandLine(cfg.ClusterName, o, dir, workDir, target) },
			Equip: func(t *platform.Tools) {
				if o.Hetzner != nil {
					t.Hetzner = o.Hetzner
				}
			}},
		Request: session.Request{Options: session.Options{StateDir: o.StateDir, Dir: o.Dir, Lab: o.Lab, LabLatency: "fast",
			LabAPI: lab.NewestAPI, Yes: o.Yes, Parallel: o.Parallel, SkipDoctor: o.SkipDoctor}},
		Cfg: settings.OfProgram(cfg),
	}
	k.Cfg.Overrides = dir
	if err := k.Cfg.Check(); err != nil {
		return k, err
	}
	k.Cfg, err = session.WithLiterals(k.Cfg)
	return k, err
}

// commandLine composes a command, for a person to type, that works on the cluster of a session.
func commandLine(cluster string, o Options, dir, workDir string, target []string) string {
	words := append([]string{platform.Program}, target...)
	lab := len(target) > 0 && target[0] == "lab"
	if o.Lab && !lab {
		words = append(words, "--lab")
	}
	if dir != "" && !lab {
		words = append(words, "--dir", dir)
	}
	if o.StateDir != "" {
		words = append(words, "--state-dir", string(statedir.New(o.StateDir, cluster, workDir)))
	}
	return text.ShellLine(append(words, "CLUSTER_NAME="+cluster)...)
}

// check refuses options that do not go together.
func (o Options) check() error {
	switch {
	case o.Lab && (o.Hetzner != nil || o.Management != nil):
		return errors.New("slipway.Options: Hetzner and Management are not allowed with Lab, which has its own")
	case !o.Lab && o.Token.Reveal() == "":
		return errors.New("slipway.Options: Token is empty: set a read-write API token of the Hetzner Cloud project, or Lab")
	}
	return nil
}

// Run checks what can be checked before a run, asks for consent, and runs targets of the plan, with every step that
// they depend on: Bootstrap if none is given. What is done already is verified and not run again. All first brings a
// cluster that manages itself to the configuration, as Apply does, and needs Options.Yes or Options.Confirm for it. The
// run is interrupted when ctx ends or the lease of the state is lost. The result is nil if no step was run.
func (s *Session) Run(ctx context.Context, targets ...string) (r *Result, err error) {
	err = s.do(ctx, targets, func(ctx context.Context, ask session.Questions) error {
		if err := s.session.RefuseDuringRecovery(); err != nil {
			return err
		}
		result, err := operations.RunTargets(ctx, s.session, s.planned, ask)
		r = newResult(result)
		return err
	})
	return r, err
}

// do begins a run or an operation. It is interrupted when ctx ends or the lease of the state is lost. Its error says
// how to resume it, and has no secrets.
func (s *Session) do(ctx context.Context, targets []string, do func(context.Context, session.Questions) error) error {
	if s.closed {
		return errors.New("slipway: the session is closed")
	}
	running, cancel, outlive := interruptible(ctx)
	defer cancel(nil)
	defer outlive()
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	s.session.Begin(running, targets)
	err := do(running, s.questions())
	return redacted(s.session.Caller.Hide, s.session.Explain(running, err))
}

// redacted returns an error without the secrets in its text.
func redacted(hide *redact.Redactor, err error) error {
	if err == nil || hide.Text(err.Error()) == err.Error() {
		return err
	}
	return &session.RewordedError{Text: hide.Text(err.Error()), Err: err}
}

// newResult returns nil where no step was run.
func newResult(r session.Result) *Result {
	if r.Report == nil {
		return nil
	}
	return &Result{Report: r.Report, journal: r.Journal}
}

// questions returns the callbacks of the options.
func (s *Session) questions() session.Questions {
	ask := session.Questions{Confirm: s.options.Confirm}
	if s.options.Consent != nil {
		ask.Consent = func(ctx context.Context, f forecast.Forecast) error {
			var text strings.Builder
			if err := f.Print(&text, 0); err != nil {
				return err
			}
			return s.options.Consent(ctx, s.session.Caller.Hide.Text(text.String()))
		}
	}
	return ask
}

// Output returns the output of a step; an error if the step is not done.
func Output[T any](ctx context.Context, r *Result, step *flow.Step[T]) (made T, err error) {
	done := false
	if r != nil && r.journal != nil {
		made, done, err = flow.Restore(ctx, r.journal, step)
	}
	if err == nil && !done {
		err = errors.New("step " + step.Name() + " is not done: it has no output")
	}
	return made, err
}

// Path returns the path of a file in the state folder, such as a kubeconfig that the output of a step names.
func (s *Session) Path(file string) string { return s.session.Folder.Path(file) }

// Config returns the configuration of the session. In the lab, which decides a part of it, it differs from that of
// Open.
func (s *Session) Config() config.Config { return s.session.Cfg.Config }

// Close ends the session: it closes the files of the run and gives the lease of the state back. Its error is that of
// the lease: what the session knows may not be in the store. A second call does nothing.
func (s *Session) Close() error { return s.end(nil) }

// end closes the session after an error, which it returns.
func (s *Session) end(err error) error {
	if s.closed {
		return err
	}
	s.closed = true
	defer s.cancel(nil)
	return redacted(s.session.Caller.Hide, s.session.Close(s.ctx, err))
}

// displays returns what receives the events of a session.
func displays(o Options) (all []session.Display) {
	if o.Progress != nil {
		all = append(all, &session.PlainDisplay{Out: o.Progress})
	}
	if o.Observe != nil {
		all = append(all, display{o.Observe})
	}
	return all
}

// display passes events to Options.Observe.
type display struct{ observe func(flow.Event) }

// Event implements session.Display.
func (d display) Event(e flow.Event) { d.observe(e) }

// Close implements session.Display.
func (display) Close() {}
