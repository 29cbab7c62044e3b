// Package session is how everything that changes a cluster begins and ends, without a terminal: lease and claim of the
// state, the tools of Hetzner or the lab, the checks before a run, the events and the files of the run.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/telemetry"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/client/ratepeers"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// Session is exclusive access to a cluster, for one or more runs and operations. From Connect on its configuration has
// what the lab decides.
type Session struct {
	Cluster
	Folder     statedir.Dir // of the state
	ID         string       // of the run
	Files      *statedir.RunFiles
	Effects    *effect.Recorder
	Limit      *ratelimit.Governor
	Hub        *Hub
	Log        io.Writer
	Tools      platform.Tools
	Began      time.Time
	PriorSteps []flow.StepReport      // work before the graph's
	Unfinished []unfinished.Operation // by their records in the state folder

	configured settings.Configuration // before the lab decided a part of it
	agreed     []string               // summaries of the consequences that the operator agreed to
	access     Access
	lease      lease
	peers      *ratepeers.Peers // the other runs of the Hetzner project; nil: they are not looked for
	endRate    func()           // ends writing down what is known of the rate limit
}

// Access is what a session opens other systems with. It is empty for one that asks nothing of Hetzner and Git.
type Access struct {
	Token platform.Secret // of Hetzner; empty in the lab
	Git   platform.GitAccess
}

// ReadAccess reads the token and what the Git repository is read with, from where the configuration says they are.
func (k Cluster) ReadAccess(ctx context.Context) (a Access, err error) {
	if !k.Lab {
		if a.Token, err = k.Caller.token(ctx, k.Cfg); err != nil {
			return a, err
		}
	}
	a.Git, err = k.gitAccess(ctx)
	return a, err
}

// Do opens a session with what the configuration says, calls use, and closes it. The context ends with the lease of the
// state. The error of an interrupted run says how to resume it.
func (k Cluster) Do(ctx context.Context, displays []Display, use func(context.Context, *Session) error) error {
	access, err := k.ReadAccess(ctx)
	if err != nil {
		return err
	}
	return k.do(ctx, access, displays, use)
}

// Operate has an operation on the cluster carried out, in a session of its own that is connected and has the journal
// locked.
func (k Cluster) Operate(ctx context.Context, displays []Display,
	operation func(context.Context, *Session) error) error {
	if err := k.CheckEnvironment(ctx); err != nil {
		return err
	}
	return k.Do(ctx, displays, func(ctx context.Context, s *Session) error {
		return s.Locked(ctx, func(ctx context.Context) error {
			if err := s.Connect(ctx); err != nil {
				return err
			}
			return operation(ctx, s)
		})
	})
}

func (k Cluster) do(ctx context.Context, access Access, displays []Display,
	use func(context.Context, *Session) error) (err error) {
	ctx, s, err := k.Open(ctx, access, displays)
	if err != nil {
		return err
	}
	defer func() { err = s.Close(ctx, err) }() // also where use panics, so that the lease is given back
	return use(ctx, s)
}

// Open takes the lease of the cluster's state, claims the state folder and opens what the run writes to. The context
// ends with the lease. A session that was opened is ended by Close.
func (k Cluster) Open(ctx context.Context, access Access, displays []Display) (context.Context, *Session, error) {
	ctx, held, err := k.takeLease(ctx)
	if err != nil {
		return ctx, nil, err
	}
	if err := k.keepPulled(ctx); err != nil {
		return ctx, nil, held.end(ctx, k.Caller, err)
	}
	s := &Session{Cluster: k, configured: k.Cfg, access: access, lease: held, Began: time.Now(),
		ID: fmt.Sprintf("%s-%d", time.Now().UTC().Format("20060102T150405.000Z"), os.Getpid())}
	if err := s.open(ctx, displays); err != nil {
		return ctx, nil, held.end(ctx, k.Caller, err)
	}
	return ctx, s, nil
}

// keepPulled is keepVersions of the state folder, once it is up to date.
func (k *Cluster) keepPulled(ctx context.Context) error {
	state, err := k.LocalState(ctx)
	if err != nil {
		return err
	}
	return k.keepVersions(ctx, state)
}

// Close ends the recording, the displays and the files of the run, and gives the lease back. err is the run's error, or
// nil; what Close returns says, where the run was interrupted, how to resume it.
func (s *Session) Close(ctx context.Context, err error) error {
	err = s.Explain(ctx, err)
	s.peers.Leave(ctx)
	s.Effects.Close()
	s.Hub.Close()
	releaseLibraries()
	if s.endRate != nil {
		s.endRate()
	}
	s.keepRequests()
	if filesErr := s.Files.Close(); filesErr != nil {
		s.Caller.Note("the run's files may be incomplete: %v", filesErr)
	}
	return s.lease.end(ctx, s.Caller, err)
}

// Explain adds to the error of an interrupted run how to resume it, and writes where a step panicked into the log.
func (s *Session) Explain(ctx context.Context, err error) error {
	if errors.As(err, new(*InterruptedError)) {
		return err
	}
	logPanic(s.Log, err)
	if err == nil || !errors.Is(errors.Join(err, context.Cause(ctx)), flow.ErrInterrupted) {
		return err
	}
	if !errors.Is(err, flow.ErrInterrupted) { // not every library passes on why its context ended
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return s.Interrupted(err, "what is done is kept in "+string(s.Folder)+"; "+s.Again()+" to resume")
}

// Again is how the same operation is asked for once more.
func (s *Session) Again() string {
	if s.Caller.Program {
		return "make the same call again"
	}
	return "run the same command again"
}

// logPanic writes where a step panicked into the log of the run: the error has only what the panic says.
func logPanic(log io.Writer, err error) {
	if panicked, ok := errors.AsType[*flow.PanicError](err); ok {
		fmt.Fprintf(log, "%v\n%s\n", panicked, panicked.Stack)
	}
}

// open claims the state folder and opens what the run writes to.
func (s *Session) open(ctx context.Context, displays []Display) (err error) {
	if s.Folder, err = s.LocalState(ctx); err != nil {
		return err
	}
	if err := s.labIsPossible(ctx); err != nil { // before anything is created
		return err
	}
	hide := s.Caller.Hide
	hide.Learn(s.Cfg.Passwords()...)
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if err := s.Folder.Claim(ctx, statedir.OwnerOf(s.Cfg.Config), s.Environment(), note); err != nil {
		return err
	}
	if s.Files, err = s.Folder.OpenRun(s.ID); err != nil {
		return err
	}
	s.Hub = &Hub{Run: s.ID, Hide: hide, Displays: append(displays, NewJSONDisplay(s.Files.Events))}
	s.Log = hide.Writer(s.Files.Log)
	redirectLibraries(s.Log)
	if files, err := render.SourceFiles(s.Cfg.Overrides); err == nil { // else who needs them says what is wrong
		if line := forecast.UsedFiles(files); line != "" {
			note("%s", line)
		}
	}
	for _, line := range notes {
		s.Hub.Note("%s", line)
	}
	s.keepSetup()
	s.Effects = s.newRecorder(s.startTracer())
	s.Limit = ratelimit.New(s.Hub.Note)
	s.endRate = keepRate(s.Limit, s.runFile(runs.RateFile))
	s.Tools = s.CommonTools(s.Folder, s.Log)
	s.Tools.Consent, s.Tools.Agreed = s.Yes, func() []string { return s.agreed }
	s.Tools.ServerTakes = runs.ReadDurations(s.Folder, s.Environment()).Server()
	s.Tools.Effects = s.Effects
	s.Tools.Files = s.Tools.RecordedFiles()
	s.noteBegun(ctx)
	return nil
}

// noteBegun says which operations were begun in the state folder and have not ended, but for those that this run
// resumes.
func (s *Session) noteBegun(ctx context.Context) {
	s.Unfinished = unfinished.In(ctx, s.Tools, s.Cfg.ClusterName, statedir.AtWork(s.Folder))
	for _, o := range s.Unfinished {
		if !o.ResumedBy(s.Targets) {
			s.Hub.Note("%s", o)
		}
	}
}

// Environment is what the session works in: statedir.EnvironmentLab or statedir.EnvironmentHetzner.
func (o Options) Environment() string {
	if o.Lab {
		return statedir.EnvironmentLab
	}
	return statedir.EnvironmentHetzner
}

// Journal is that of the state folder, for as long as the folder belongs to the session's cluster and environment.
func (s *Session) Journal() flow.Journal {
	return statedir.NewRecordedJournal(s.Folder, statedir.OwnerOf(s.Cfg.Config), s.Environment(), s.Effects)
}

// Begin names the targets or the operation that a session with several of them runs next, and reads again which
// operations have not ended: an earlier one of the session may have ended one.
func (s *Session) Begin(ctx context.Context, targets []string) {
	s.Targets = targets
	s.keepSetup()
	s.Unfinished = unfinished.In(ctx, s.Tools, s.Cfg.ClusterName, statedir.AtWork(s.Folder))
}

// Locked calls do while it holds the journal's lock, so that no other run works on the same cluster.
func (s *Session) Locked(ctx context.Context, do func(context.Context) error) (err error) {
	unlock, err := s.Journal().Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return do(ctx)
}

// runFile is the path of a file of the run.
func (s *Session) runFile(name string) string {
	return s.Folder.Path(filepath.Join(statedir.RunsFolder, s.ID, name))
}

// keepSetup writes down for a report what the run begins with. It is written again once the lab, which decides a part
// of the configuration, is up. The run does not need it.
func (s *Session) keepSetup() {
	setup := runs.Setup{
		Version: Version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Environment: s.Environment(), Cluster: s.Cfg.ClusterName, Targets: s.Targets, Settings: settings.List(s.Cfg),
	}
	data, err := json.MarshalIndent(setup, "", "  ")
	if err == nil {
		err = os.WriteFile(s.runFile(runs.SetupFile), []byte(s.Caller.Hide.Text(string(data))), 0o600)
	}
	if err != nil {
		s.Hub.Note("a report of this run will not have its configuration: %v", err)
	}
}

// keepRequests writes down for a report how many requests the run sent to Hetzner. The run does not need it.
func (s *Session) keepRequests() {
	data, err := json.Marshal(s.Limit.Counts())
	if err == nil {
		err = os.WriteFile(s.runFile(runs.RequestsFile), data, 0o600)
	}
	if err != nil {
		s.Caller.Note("a report of this run will not have its requests to Hetzner: %v", err)
	}
}

// newRecorder makes the recorder of a run's effects; tracer may be nil.
func (s *Session) newRecorder(tracer *telemetry.Tracer) *effect.Recorder {
	o := effect.Options{
		Lines: s.Caller.Hide.Writer(s.Files.Effects),
		Warn: func(err error) {
			s.Hub.Note("what this run changes is not written down any more (%v); "+
				"the run continues, and what it knows of the cluster is in the journal", err)
		},
		// Not every library passes the context of the step on; while one step alone runs, the call is that one's.
		Step: func(ctx context.Context) string {
			if name := flow.StepName(ctx); name != "" {
				return name
			}
			return s.Hub.OnlyRunningStep()
		},
	}
	if tracer != nil {
		o.Watch = watchCalls(tracer, s.Caller.Hide)
	}
	if s.Caller.Faults != nil {
		o.Faults = s.Caller.Faults()
	}
	if s.lease.session != nil {
		o.Lease = s.lease.session
	}
	return effect.New(o)
}

// Interrupted is the error of an interrupted run, which says what remains of it, and what failed besides.
func (s *Session) Interrupted(err error, remains string) error {
	var lines []string
	if failed, ok := errors.AsType[*flow.StepError](err); ok {
		lines = append(lines, failed.Error())
	}
	lines = append(lines, "interrupted: "+remains)
	if s.Lab {
		lines = append(lines, "the lab stays up; to end it: "+s.Caller.Command("lab", "down"))
	}
	return &InterruptedError{Text: strings.Join(lines, "\n"), Err: err}
}

// InterruptedError is the error of a run that was interrupted, in words that say how to resume it.
type InterruptedError struct {
	Text string
	Err  error
}

func (e *InterruptedError) Error() string { return e.Text }
func (e *InterruptedError) Unwrap() error { return e.Err }
