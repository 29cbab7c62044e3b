package cli

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// running is a session of this command.
type running struct {
	*session.Session
	console   *console
	options   options
	arguments arguments
}

// caller is the console as sessions see it.
func (c *console) caller() *session.Caller {
	return &session.Caller{
		Environment: c.environment, WorkDir: c.workDir, Hide: c.hide, Faults: c.faults, Equip: c.equip, Charts: c.charts,
		Memory:      &c.memory,
		Notes:       func(line string) { c.note(line) },
		CommandLine: func(target ...string) string { return commandLine(c, target...) },
	}
}

// note writes a line on standard error: for what is said before a run has its display.
func (c *console) note(line string) {
	fmt.Fprint(c.stderr, text.Fold("note: "+line+"\n", errorWidth(c)))
}

// tell is note for a line that is composed here.
func tell(c *console, format string, args ...any) { c.caller().Note(format, args...) }

// request is what the arguments ask of a session.
func (a arguments) request() session.Request {
	return session.Request{Targets: a.Targets, Values: a.Values, Base: a.base, WorkDir: a.workDir,
		Options: a.Options.Options}
}

// cluster is the cluster of a configuration that the arguments name.
func (c *console) cluster(a arguments, cfg settings.Configuration) session.Cluster {
	return session.Cluster{Caller: c.caller(), Request: a.request(), Cfg: cfg}
}

// loadConfig reads the configuration that the arguments and the environment name.
func loadConfig(a arguments, environment map[string]string) (settings.Configuration, error) {
	k, err := session.Load(&session.Caller{Environment: environment}, a.request())
	return k.Cfg, err
}

// loadCluster is the cluster that the arguments name, with its configuration.
func loadCluster(c *console, a arguments) (session.Cluster, error) {
	return session.Load(c.caller(), a.request())
}

// configAndState reads the configuration that the arguments name, and finds its state folder.
func configAndState(ctx context.Context, c *console, a arguments) (settings.Configuration, statedir.Dir, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return cfg, "", err
	}
	state, err := c.cluster(a, cfg).State(ctx)
	return cfg, state, err
}

// labConfigAndState is configAndState for the targets of the lab alone.
func labConfigAndState(ctx context.Context, c *console, a arguments) (settings.Configuration, statedir.Dir, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return cfg, "", err
	}
	state, err := c.cluster(a, cfg).StateForLab(ctx)
	return cfg, state, err
}

// withRun opens a session with the credentials that the configuration names, has it used and closes it.
func withRun(ctx context.Context, c *console, a arguments, cfg settings.Configuration,
	do func(context.Context, *running) error) error {
	access, err := c.cluster(a, cfg).ReadAccess(ctx)
	if err != nil {
		return err
	}
	use := func(ctx context.Context, s *session.Session) error {
		return do(ctx, &running{Session: s, console: c, options: a.Options, arguments: a})
	}
	return c.cluster(a, cfg).Do(ctx, access, runDisplays(c, a.Options), use)
}

// runDisplays are those of a run, which continues where the reader of its output is gone.
func runDisplays(c *console, o options) []session.Display {
	outliveReaders()
	return []session.Display{newDisplay(c, o)}
}

// newDisplay shows a run as stdout is able to and the options say.
func newDisplay(c *console, o options) session.Display {
	switch {
	case o.Output == "json":
		return session.NewJSONDisplay(c.stdout)
	case c.width() > 0:
		return ui.NewTerminalDisplay(c.stdout, c.size, c.environment["NO_COLOR"] == "")
	default:
		return &session.PlainDisplay{Out: c.stdout}
	}
}
