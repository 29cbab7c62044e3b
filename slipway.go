// Package slipway bootstraps a Talos Linux Kubernetes cluster on Hetzner Cloud through Cluster API, or rehearses that in
// the lab, as the command bootstrap does. Open takes the lease of the cluster's state, connects and plans; steps can be
// added to the plan. Run checks what can be checked before a run, asks for consent, and runs the plan. To resume an
// interrupted run, make the same calls again. A process has one session at a time, because the loggers of Kubernetes'
// libraries, which a session sends to its log file, belong to the process.
package slipway

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
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
	// Note receives messages that are no events, before Open returns and in Close. Optional.
	Note func(string)
	// Consent is called before a run at Hetzner changes something, with what it would change, as the command prints it.
	// Its error ends the run. If nil, the run goes ahead; it still refuses to delete or replace servers unless Yes is set.
	Consent func(ctx context.Context, forecast string) error
	// Confirm is called before an operation deletes or replaces something; want is the word that agrees. Its error ends
	// the operation, which has changed nothing. If nil, the operation is refused unless Yes is set.
	Confirm func(ctx context.Context, question, want string) error
	// Yes agrees beforehand to what is refused otherwise: servers that are deleted or replaced.
	Yes bool
	// Parallel is the maximum number of steps that run at once. 0: no maximum.
	Parallel int
	// SkipDoctor skips the checks before a run that creates what costs money.
	SkipDoctor bool
}

// Session is exclusive access to a cluster, for one or more runs and operations. It is not safe for concurrent use.
type Session struct {
	// Plan is the plan of the bootstrap. Steps can be added to its graph, and replaced, before Run.
	Plan *steps.Plan

	ctx     context.Context // ends with the lease of the state
	session *session.Session
	planned planning.Bootstrap
	options Options
	err     error // of the last run or operation that failed
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
		return nil, err
	}
	s, err := open(ctx, k, o)
	if err != nil {
		return nil, err
	}
	if s.err = s.session.CheckProject(ctx); s.err == nil {
		s.planned, s.err = s.session.Plan()
	}
	if s.err != nil {
		return nil, s.Close()
	}
	s.Plan = s.planned.Plan
	return s, nil
}

// open takes the lease, claims the folder and connects.
func open(ctx context.Context, k session.Cluster, o Options) (*Session, error) {
	if err := k.CheckEnvironment(ctx); err != nil {
		return nil, err
	}
	k.Targets = []string{"library"} // until a run or an operation begins
	ctx, opened, err := k.Open(ctx, session.Access{Token: o.Token, Git: o.Git}, displays(o))
	if err != nil {
		return nil, err
	}
	s := &Session{ctx: ctx, session: opened, options: o}
	if s.err = opened.Connect(ctx); s.err != nil {
		return nil, s.Close()
	}
	return s, nil
}

// cluster is the cluster of a configuration and options.
func cluster(cfg config.Config, o Options) (k session.Cluster, err error) {
	if err := o.check(); err != nil {
		return k, err
	}
	hide := &redact.Redactor{}
	hide.Learn(o.Token.Reveal(), o.Git.Token.Reveal(), o.Git.Key.Reveal())
	workDir, err := os.Getwd()
	if err != nil {
		return k, err
	}
	dir := o.Dir
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(workDir, dir)
	}
	k = session.Cluster{
		Caller: &session.Caller{Environment: settings.Environ(os.Environ()), WorkDir: workDir, Hide: hide, Notes: o.Note,
			Memory: &session.Memory{}, Token: o.Token, Management: o.Management, Equip: func(t *platform.Tools) {
				if o.Hetzner != nil {
					t.Hetzner = o.Hetzner
				}
			}},
		Request: session.Request{Options: session.Options{StateDir: o.StateDir, Dir: o.Dir, Lab: o.Lab, LabLatency: "fast",
			LabAPI: lab.NewestAPI, Yes: o.Yes, Parallel: o.Parallel, SkipDoctor: o.SkipDoctor}},
		Cfg: settings.Configuration{Config: cfg, Places: map[string]string{}, Overrides: dir},
	}
	if err := k.Cfg.Check(); err != nil {
		return k, err
	}
	k.Cfg, err = session.WithLiterals(k.Cfg)
	return k, err
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
// they depend on: Bootstrap if none is given. What is done already is verified and not run again. The run is interrupted
// when ctx ends or the lease of the state is lost. The result is nil if no step was run.
func (s *Session) Run(ctx context.Context, targets ...string) (r *Result, err error) {
	defer func() { s.failed(err) }()
	if err := s.session.RefuseDuringRecovery(); err != nil {
		return nil, err
	}
	ctx, end := s.until(ctx)
	defer end()
	s.session.Begin(ctx, targets)
	result, err := s.session.Bootstrap(ctx, s.planned, s.questions())
	return newResult(result), err
}

// newResult returns nil where no step was run.
func newResult(r session.Result) *Result {
	if r.Report == nil {
		return nil
	}
	return &Result{Report: r.Report, journal: r.Journal}
}

// failed keeps the error of a run or an operation for Close.
func (s *Session) failed(err error) {
	if err != nil {
		s.err = err
	}
}

// until returns ctx, cancelled also when the lease of the state is lost.
func (s *Session) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
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

// Config returns the configuration of the session. In the lab, which decides a part of it, it differs from that of Open.
func (s *Session) Config() config.Config { return s.session.Cfg.Config }

// Close ends the session: it closes the files of the run and gives the lease of the state back. It returns the error of
// the last run or operation that failed, with instructions to resume if it was interrupted. A second call does nothing.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.session.Close(s.ctx, s.err)
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
