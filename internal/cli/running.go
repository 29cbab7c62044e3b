package cli

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

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/factory"
	"github.com/slipway-k8s/slipway/internal/base/telemetry"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/client/ratepeers"
	"github.com/slipway-k8s/slipway/internal/operation/begun"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// running is what the parts of one run share, from its folder to its summary.
type running struct {
	console *console
	options options
	cfg     settings.Configuration
	token   platform.Secret // of Hetzner; empty in the lab
	git     platform.GitAccess
	state   statedir.Dir
	id      string
	asked   []string // the targets, as the operator wrote them
	files   *statedir.RunFiles
	effects *effect.Recorder
	limit   *ratelimit.Governor
	peers   *ratepeers.Peers // the other runs of the Hetzner project; nil: they are not looked for
	hub     *ui.Hub
	log     io.Writer
	tools   platform.Tools
	began   time.Time
	before  []flow.StepReport // work before the graph's
	begun   []begun.Operation // that have not ended, by their records in the state folder
	endRate func()            // ends writing down what is known of the rate limit
}

// withRun opens a run, has it done and closes it. The error of an interrupted run says how to resume it.
func withRun(
	ctx context.Context, c *console, a arguments, cfg settings.Configuration, do func(context.Context, *running) error,
) (err error) {
	var token platform.Secret
	if !a.Options.Lab {
		if token, err = cfg.Token(ctx, c.environment); err != nil {
			return err
		}
		c.hide.Learn(token.Reveal())
	}
	git, err := gitAccess(ctx, c, cfg, a.Options.Lab)
	if err != nil {
		return err
	}
	return withCredentials(ctx, c, a, cfg, token, git, do)
}

// withCredentials is withRun with credentials that are known, or none for a run that asks nothing of Hetzner and Git.
func withCredentials(ctx context.Context, c *console, a arguments, cfg settings.Configuration, token platform.Secret,
	git platform.GitAccess, do func(context.Context, *running) error) (err error) {
	ctx, held, err := takeLease(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	defer func() { err = held.end(ctx, c, err) }()
	r, err := openRun(ctx, c, a, cfg, held)
	if err != nil {
		return err
	}
	defer r.close()
	defer func() { r.peers.Leave(ctx) }()
	r.token, r.git = token, git
	err = do(ctx, r)
	logPanic(r.log, err)
	if err != nil && errors.Is(errors.Join(err, context.Cause(ctx)), flow.ErrInterrupted) {
		return interrupted(r, err)
	}
	return err
}

// logPanic writes where a step panicked into the log of the run: the error has only what the panic says.
func logPanic(log io.Writer, err error) {
	if panicked, ok := errors.AsType[*flow.PanicError](err); ok {
		fmt.Fprintf(log, "%v\n%s\n", panicked, panicked.Stack)
	}
}

// openRun claims the state folder and opens what the run writes to.
func openRun(ctx context.Context, c *console, a arguments, cfg settings.Configuration, held lease) (*running, error) {
	state, err := localStateOf(ctx, c, a, cfg)
	if err != nil {
		return nil, err
	}
	r := &running{
		console: c, options: a.Options, cfg: cfg, state: state, began: time.Now(), asked: a.Targets,
		id: fmt.Sprintf("%s-%d", time.Now().UTC().Format("20060102T150405.000Z"), os.Getpid()),
	}
	if err := findLabImages(c, a.Options); err != nil {
		return nil, err
	}
	if a.Options.Lab { // before anything is created
		l, err := newLabWith(c, a.Options, cfg, state)
		if err != nil {
			return nil, err
		}
		if err := l.Possible(ctx); err != nil {
			return nil, err
		}
	}
	outliveReaders()
	c.hide.Learn(cfg.Passwords()...)
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if err := state.Claim(ctx, statedir.OwnerOf(cfg.Config), r.environment(), note); err != nil {
		return nil, err
	}
	if r.files, err = state.OpenRun(r.id); err != nil {
		return nil, err
	}
	displays := []ui.Display{newDisplay(c, a.Options), ui.NewJSONDisplay(r.files.Events)}
	if c.watch != nil {
		displays = append(displays, c.watch)
	}
	r.hub = &ui.Hub{Run: r.id, Hide: c.hide, Displays: displays}
	r.log = c.hide.Writer(r.files.Log)
	platform.RedirectLibraryLogs(r.log)
	if line := filesOf(cfg.Overrides); line != "" {
		note("%s", line)
	}
	for _, line := range notes {
		r.hub.Note("%s", line)
	}
	keepSetup(r)
	r.effects = newRecorder(c, r.files.Effects, r.hub, startTracer(r), held)
	r.limit = ratelimit.New(r.hub.Note)
	r.endRate = keepRate(r.limit, r.state.Path(filepath.Join(statedir.RunsFolder, r.id, runs.RateFile)))
	r.tools = commonTools(state, cfg, c.environment, r.log)
	r.tools.CommandLine = func(target ...string) string { return commandLine(c, target...) }
	r.tools.Consent = a.Options.Yes
	r.tools.ServerTakes = runs.ReadDurations(state, r.environment()).Server()
	r.tools.Effects = r.effects
	r.tools.Files = r.tools.RecordedFiles()
	r.tellBegun(ctx)
	return r, nil
}

// tellBegun says which operations were begun in the state folder and have not ended, but for those that this run
// resumes.
func (r *running) tellBegun(ctx context.Context) {
	r.begun = begun.In(ctx, r.tools, r.cfg.ClusterName, statedir.AtWork(r.state))
	for _, o := range r.begun {
		if !o.ResumedBy(r.asked) {
			r.hub.Note("%s", o)
		}
	}
}

// close ends the recording, the displays and the files of the run.
func (r *running) close() {
	r.effects.Close()
	r.hub.Close()
	if r.endRate != nil {
		r.endRate()
	}
	r.keepRequests()
	if err := r.files.Close(); err != nil {
		fmt.Fprintln(r.console.stderr, "warning: the run's files may be incomplete:", err)
	}
}

func (r *running) environment() string { return environmentOf(r.options) }

func environmentOf(o options) string {
	if o.Lab {
		return statedir.EnvironmentLab
	}
	return statedir.EnvironmentHetzner
}

// journal is that of the state folder, for as long as the folder belongs to the run's cluster and environment.
func (r *running) journal() flow.Journal {
	return statedir.NewRecordedJournal(r.state, statedir.OwnerOf(r.cfg.Config), r.environment(), r.effects)
}

// connect equips a run for Hetzner, or for the lab, which it starts.
func connect(ctx context.Context, r *running) error {
	if r.options.Lab {
		return connectToLab(ctx, r)
	}
	r.tools.Token, r.tools.Git = r.token, r.git
	sharePeers(ctx, r)
	r.tools.Factory = factory.Address
	r.tools.Hetzner = hetznerClient(r.console.environment[settings.EndpointVariable], r.token, r.effects,
		r.limit)
	var err error
	r.tools.Management, err = newManagement(r.console, r.cfg, r.state, r.tools.Files, r.options.Yes, r.log, r.effects)
	if err != nil {
		return err
	}
	if r.console.equip != nil {
		r.console.equip(&r.tools)
	}
	resumeManagement(ctx, r)
	return nil
}

func connectToLab(ctx context.Context, r *running) error {
	l, err := newLabWith(r.console, r.options, r.cfg, r.state)
	if err != nil {
		return err
	}
	l.Client.Record(r.effects)
	_, err = l.Answering(ctx)
	wasUp, outcome := err == nil, flow.Ran
	if wasUp {
		outcome = flow.Reused
	}
	if wasUp && (r.options.LabLatency != "fast" || r.options.LabImages != "" || r.options.LabAPI != lab.NewestAPI) {
		r.hub.Note("the lab is up already: --lab-latency, --lab-api and --lab-images count when it starts")
	}
	var info lab.Info
	err = r.hub.Task("lab", "the simulated environment of a rehearsal", func(say flow.Say) (err error) {
		if info, err = l.Up(ctx, say); err != nil {
			return err
		}
		if r.cfg.GitOps == config.GitOpsFlux {
			if info, err = l.AddFlux(ctx, r.cfg.Config, say); err != nil {
				return err
			}
		}
		if r.cfg.GitInGitea() { // the stand-in has no repositories
			if info, err = l.AddGitea(ctx, say); err != nil {
				return err
			}
		}
		if info, err = l.Client.Admit(ctx, r.cfg.ClusterName); err != nil {
			return err
		}
		r.console.hide.Learn(info.Token, info.Git.Token)
		if info.ImageBuild.Possible {
			return nil
		}
		say("no image can be built in this lab: %s", info.ImageBuild.Reason)
		return l.Client.PrepareImages(ctx, r.cfg.Config, say)
	})
	if err != nil {
		return err
	}
	r.before = append(r.before, flow.StepReport{Name: "lab", Outcome: outcome, Elapsed: time.Since(r.began)})
	cfg, tools, notes, err := enterLab(r.cfg, r.tools, l.Client, info, r.console.environment, r.limit)
	if err != nil {
		return err
	}
	if !wasUp { // they do not change while it is up
		notes = append(notes, info.Notes...)
	}
	for _, note := range notes {
		r.hub.Note("%s", note)
	}
	if tools.Git = r.git; tools.Git.Empty() && cfg.GitURL == info.Git.URL {
		tools.Git = info.GitAccess()
	}
	if err := cfg.MissingGitURL(); err != nil {
		return &usage.Error{Err: err}
	}
	r.cfg, r.tools = cfg, rehearsedManagement(cfg, tools, r.state, l, info)
	sharePeers(ctx, r)
	keepSetup(r)
	resumeManagement(ctx, r)
	return nil
}

// provideKubernetes makes sure that a lab has the programs that servers of a Kubernetes version run. One that the run
// has started has those of the configured version; one that was up before may have run another.
func provideKubernetes(ctx context.Context, r *running, version string) error {
	if !r.options.Lab {
		return nil
	}
	l, err := newLabWith(r.console, r.options, r.cfg, r.state)
	if err != nil {
		return err
	}
	info, err := l.Answering(ctx)
	if err != nil || !l.NeedsKubernetes(info, version) {
		return err
	}
	return r.hub.Task("lab", "the programs of another Kubernetes version", func(say flow.Say) error {
		return l.AddKubernetes(ctx, version, say)
	})
}

// keepSetup writes down for a report what the run begins with. It is written again once the lab, which decides a part
// of the configuration, is up. The run does not need it.
func keepSetup(r *running) {
	s := runs.Setup{
		Version: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Environment: r.environment(), Cluster: r.cfg.ClusterName, Targets: r.asked, Settings: settings.List(r.cfg),
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		file := r.state.Path(filepath.Join(statedir.RunsFolder, r.id, runs.SetupFile))
		err = os.WriteFile(file, []byte(r.console.hide.Text(string(data))), 0o600)
	}
	if err != nil {
		r.hub.Note("a report of this run will not have its configuration: %v", err)
	}
}

// keepRequests writes down for a report how many requests the run sent to Hetzner. The run does not need it.
func (r *running) keepRequests() {
	data, err := json.Marshal(r.limit.Counts())
	if err == nil {
		file := r.state.Path(filepath.Join(statedir.RunsFolder, r.id, runs.RequestsFile))
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		fmt.Fprintln(r.console.stderr, "warning: a report of this run will not have its requests to Hetzner:", err)
	}
}

// newRecorder makes the recorder of a run's effects; tracer may be nil.
func newRecorder(c *console, lines io.Writer, hub *ui.Hub, tracer *telemetry.Tracer, held lease) *effect.Recorder {
	o := effect.Options{
		Lines: c.hide.Writer(lines),
		Warn: func(err error) {
			hub.Note("what this run changes is not written down any more (%v); "+
				"the run continues, and what it knows of the cluster is in the journal", err)
		},
		// Not every library passes the context of the step on; while one step alone runs, the call is that one's.
		Step: func(ctx context.Context) string {
			if name := flow.StepName(ctx); name != "" {
				return name
			}
			return hub.Alone()
		},
	}
	if tracer != nil {
		o.Watch = watchCalls(tracer, c.hide)
	}
	if c.faults != nil {
		o.Faults = c.faults()
	}
	if held.session != nil {
		o.Lease = held.session
	}
	return effect.New(o)
}

// newDisplay shows a run as stdout is able to and the options say.
func newDisplay(c *console, o options) ui.Display {
	switch {
	case o.Output == "json":
		return ui.NewJSONDisplay(c.stdout)
	case c.width() > 0:
		return ui.NewTerminalDisplay(c.stdout, c.size, c.environment["NO_COLOR"] == "")
	default:
		return &ui.PlainDisplay{Out: c.stdout}
	}
}

// interrupted says what is kept and how to resume, and what failed besides.
func interrupted(r *running, err error) error {
	var lines []string
	if failed, ok := errors.AsType[*flow.StepError](err); ok {
		lines = append(lines, failed.Error())
	}
	lines = append(lines, "interrupted: what is done is kept in "+string(r.state)+"; run the same command again to resume")
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
