// Package slipway bootstraps a Talos Linux Kubernetes cluster on Hetzner Cloud through Cluster API, or rehearses that in
// the lab, as the command bootstrap does: Open takes the lease of the cluster's state and connects, the plan of the
// session can be added to, Run checks what can be checked before a run, asks for consent, and runs the plan. A run that
// was cut off anywhere is resumed by the same calls.
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

// Options are what a session works with besides the configuration of the cluster.
type Options struct {
	// StateDir is the state folder: journal, kubeconfigs, logs; empty: .slipway/<cluster>. A folder belongs to one
	// cluster, and one run at a time works in it.
	StateDir string
	// Dir has the folders manifests/ and bootstrap/ of the operator's own files; empty: the built-in files alone.
	Dir string
	// Lab rehearses in the lab of the state folder, without Token.
	Lab bool
	// Token is of the Hetzner Cloud project; it reads and writes.
	Token platform.Secret
	// Git is what Flux reads the configured Git repository with; empty: no access is needed, or Flux is not configured.
	Git platform.GitAccess
	// Management makes the management cluster; nil: what the configuration names.
	Management platform.ManagementProvider
	// Hetzner is the client of the Hetzner API, whose calls are not recorded then; nil: one with Token.
	Hetzner *hcloud.Client

	// Observe gets every event of the session: of the steps, and of what precedes them; nil: nobody does. Secrets are
	// taken out of them.
	Observe func(flow.Event)
	// Progress gets a line for each change of a step, as the command prints them into a pipe; nil: nobody does.
	Progress io.Writer
	// Note gets what is said while there are no events: before Open returns, and in Close; nil: it is discarded.
	Note func(string)
	// Consent gets what a run at Hetzner would change, as the command prints it, before it changes anything. Its error
	// ends the run. nil: the run goes ahead, and refuses what deletes or replaces servers unless Yes is set.
	Consent func(ctx context.Context, forecast string) error
	// Confirm is asked before an operation deletes or replaces something; want is the word that agrees to it. Its error
	// ends the operation, which has changed nothing. nil: the operation is refused unless Yes is set.
	Confirm func(ctx context.Context, question, want string) error
	// Yes agrees beforehand to what is refused otherwise: servers that are deleted or replaced.
	Yes bool
	// Parallel is how many steps run at once at most; 0: as many as can.
	Parallel int
	// SkipDoctor leaves out the checks before a run that creates what costs money.
	SkipDoctor bool
}

// Session is the hold of one run on a cluster. It is not safe for concurrent use.
type Session struct {
	// Plan is the plan of the bootstrap. Steps may be added to its graph, and replaced, before Run.
	Plan *steps.Plan

	ctx     context.Context // ends with the lease of the state
	session *session.Session
	planned planning.Bootstrap
	options Options
	err     error // of the last run
}

// Result is what a run has come to.
type Result struct {
	// Report has what became of each step.
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
func cluster(cfg config.Config, o Options) (session.Cluster, error) {
	environment := settings.Environ(os.Environ())
	hide := &redact.Redactor{}
	hide.Learn(o.Token.Reveal(), o.Git.Token.Reveal(), o.Git.Key.Reveal())
	workDir, err := os.Getwd()
	if err != nil {
		return session.Cluster{}, err
	}
	dir := o.Dir
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(workDir, dir)
	}
	k := session.Cluster{
		Caller: &session.Caller{Environment: environment, WorkDir: workDir, Hide: hide, Notes: o.Note, Once: &session.Once{},
			Token: o.Token,
			Equip: func(t *platform.Tools) { equip(t, o) }},
		Request: session.Request{Options: session.Options{StateDir: o.StateDir, Dir: o.Dir, Lab: o.Lab, LabLatency: "fast",
			LabAPI: lab.NewestAPI, Yes: o.Yes, Parallel: o.Parallel, SkipDoctor: o.SkipDoctor}},
		Cfg: settings.Configuration{Config: cfg, Places: map[string]string{}, Overrides: dir},
	}
	if err := k.Cfg.Check(); err != nil {
		return k, err
	}
	if k.Cfg, err = session.WithLiterals(k.Cfg); err != nil {
		return k, err
	}
	if !o.Lab && o.Token.Reveal() == "" && o.Hetzner == nil {
		return k, errors.New("open a session at Hetzner: Options.Token is empty: it needs an API token of the project that " +
			"reads and writes, or Options.Lab")
	}
	return k, nil
}

// equip puts what a program brings in the place of the session's own.
func equip(t *platform.Tools, o Options) {
	if o.Hetzner != nil {
		t.Hetzner = o.Hetzner
	}
	if o.Management != nil {
		t.Management = o.Management
	}
}

// Run checks what can be checked before a run, asks for consent, and runs targets of the plan, with every step that
// they depend on: Bootstrap without any. What is done already is verified and not run again. It ends, as if it were
// interrupted, where ctx ends or the lease of the state is lost.
func (s *Session) Run(ctx context.Context, targets ...string) (*Result, error) {
	if err := s.session.RefuseDuringRecovery(); err != nil {
		return nil, err
	}
	ctx, end := s.until(ctx)
	defer end()
	s.session.Targets = targets
	result, err := s.session.Bootstrap(ctx, s.planned, s.questions())
	s.err = err
	if result.Report == nil {
		return nil, err
	}
	return &Result{Report: result.Report, journal: result.Journal}, err
}

// until is ctx, which ends with the lease of the state, too.
func (s *Session) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// questions are what the program wants to be asked.
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

// Output is what a step of a run has given; an error where it is not done.
func Output[T any](ctx context.Context, r *Result, step *flow.Step[T]) (T, error) {
	made, done, err := flow.Restore(ctx, r.journal, step)
	if err == nil && !done {
		err = errors.New("step " + step.Name() + " is not done: it has no output")
	}
	return made, err
}

// Path is the path of a file of the state folder, such as a kubeconfig that the output of a step names.
func (s *Session) Path(file string) string { return s.session.Folder.Path(file) }

// Config is the configuration of the session: in the lab, which decides a part of it, not the one that Open was given.
func (s *Session) Config() config.Config {
	return s.session.Cfg.Config
}

// Close ends the session: it closes the files of the run and gives the lease of the state back. It returns the error of
// the last run, with what it takes to resume where that was interrupted.
func (s *Session) Close() error {
	return s.session.Close(s.ctx, s.err)
}

// displays are what shows a session.
func displays(o Options) (all []session.Display) {
	if o.Progress != nil {
		all = append(all, &session.PlainDisplay{Out: o.Progress})
	}
	if o.Observe != nil {
		all = append(all, display{o.Observe})
	}
	return all
}

// display hands events to a program.
type display struct{ observe func(flow.Event) }

// Event implements session.Display.
func (d display) Event(e flow.Event) { d.observe(e) }

// Close implements session.Display.
func (display) Close() {}
