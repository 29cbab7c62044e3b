package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// logsTail is with how many lines of each container following begins.
const logsTail = 10

// controllerNames are the words that logs takes.
func controllerNames() []string {
	var names []string
	for _, c := range logs.Controllers() {
		names = append(names, c.Name)
	}
	return names
}

// wantedControllers are those of the names; all where there is none. The add-ons of a configuration are among them.
func wantedControllers(names []string, cfg config.Config) ([]logs.Controller, error) {
	all := append(logs.Controllers(), logs.OfAddons(cfg)...)
	if len(names) == 0 {
		return all, nil
	}
	var wanted []logs.Controller
	for _, name := range names {
		i := slices.IndexFunc(all, func(c logs.Controller) bool { return c.Name == name })
		if i < 0 {
			var known []string
			for _, c := range all {
				known = append(known, c.Name)
			}
			return nil, usage.Errorf("there is no controller %q%s; there are %s",
				name, usage.DidYouMean("", name, known), strings.Join(known, ", "))
		}
		if !slices.ContainsFunc(wanted, func(c logs.Controller) bool { return c.Name == name }) {
			wanted = append(wanted, all[i])
		}
	}
	return wanted, nil
}

// runLogs shows what the controllers write. To be interrupted is how it ends.
func runLogs(ctx context.Context, c *console, a arguments, o logsOptions) error {
	if o.Since < 0 {
		return usage.Errorf("--since %s is negative: 10m means what is not older than ten minutes", o.Since)
	}
	cfg, state, err := configAndState(ctx, c, a)
	if err != nil {
		return err
	}
	wanted, err := wantedControllers(a.Targets[1:], cfg.Config)
	if err != nil {
		return err
	}
	at, err := c.cluster(a, cfg).Inspect(ctx, state)
	if err != nil {
		return err
	}
	tools, offline := at.Tools, at.Offline
	cfg = at.Cfg
	if environment, err := state.Environment(); err == nil && offline != "" && (a.Options.Lab ||
		environment == statedir.EnvironmentLab) {
		return errors.New(offline) // Hetzner is not needed for it
	}
	out := newLogPrinter(c, a.Options)
	wish := logs.Options{
		Controllers: wanted, Since: o.Since, Lines: o.Tail,
		Line: out.line, Note: out.note, Secret: func(s string) { c.hide.Learn(s) },
	}
	if o.NoFollow {
		return logs.Read(ctx, cfg.Config, tools, wish)
	}
	if wish.Lines < 0 && wish.Since == 0 {
		wish.Lines = logsTail
	}
	logs.Follow(ctx, cfg.Config, tools, wish)
	if cause := context.Cause(ctx); !errors.Is(cause, flow.ErrInterrupted) {
		return cause
	}
	return nil
}

// logPrinter writes lines of logs, one at a time, and each remark once.
type logPrinter struct {
	mu       sync.Mutex
	out, err io.Writer
	hide     *redact.Redactor
	json     bool
	colour   bool
	colours  map[string]string // by Pod
	noted    map[string]bool
}

func newLogPrinter(c *console, o options) *logPrinter {
	return &logPrinter{
		out: c.stdout, err: c.stderr, hide: c.hide, json: o.Output == "json",
		colour:  c.width() > 0 && c.environment["NO_COLOR"] == "",
		colours: map[string]string{}, noted: map[string]bool{},
	}
}

// logColours tell Pods apart: all but black and white, of which one is the background, and red, which looks like an
// error.
func logColours() []string {
	return []string{"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m", "\x1b[96m", "\x1b[93m", "\x1b[92m",
		"\x1b[95m", "\x1b[94m"}
}

// jsonLogLine is a line in `bootstrap logs --output json`.
type jsonLogLine struct {
	Time       time.Time `json:"time,omitzero"`
	Cluster    string    `json:"cluster"`
	Controller string    `json:"controller"`
	Namespace  string    `json:"namespace"`
	Pod        string    `json:"pod"`
	Container  string    `json:"container"`
	Text       string    `json:"text"`
}

func (p *logPrinter) line(l logs.Line) {
	text := harmless(p.hide.Text(l.Text))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		data, err := json.Marshal(jsonLogLine{l.Time, l.Cluster, l.Controller, l.Namespace, l.Pod, l.Container, text})
		if err == nil {
			_, _ = p.out.Write(append(data, '\n')) // whoever has closed it is not interested
		}
		return
	}
	_, _ = fmt.Fprintf(p.out, "%s %s\n", p.prefix(l), text)
}

// prefix says whose line it is: the cluster, and the Pod, whose name begins with its controller's. The container is
// named where it is not the one that every controller has.
func (p *logPrinter) prefix(l logs.Line) string {
	text := l.Cluster + "/" + l.Pod
	if l.Container != "" && l.Container != "manager" && !strings.HasPrefix(l.Pod, l.Container+"-") {
		text += "/" + l.Container
	}
	text = harmless(text)
	if !p.colour {
		return text + " |"
	}
	key := l.Cluster + "/" + l.Namespace + "/" + l.Pod
	if p.colours[key] == "" {
		colours := logColours()
		p.colours[key] = colours[len(p.colours)%len(colours)]
	}
	return p.colours[key] + text + ui.StyleReset + " |"
}

// note says why something is not read, once.
func (p *logPrinter) note(about logs.Line, why string) {
	who := about.Cluster + " cluster"
	if about.Pod != "" {
		who = about.Cluster + "/" + about.Pod + "/" + about.Container
	}
	text := text.Printable(p.hide.Text(who + ": " + why))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noted[text] {
		return
	}
	p.noted[text] = true
	_, _ = fmt.Fprintln(p.err, "note:", text)
}

// harmless leaves a text as it is but for what would move a cursor or change colours.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}

// logsOptions are the flags of logs.
type logsOptions struct {
	Since    time.Duration // how far back; 0: as far as Tail
	Tail     int64         // lines of each container; below 0: by whether it follows
	NoFollow bool          // end behind what is there
}

func newLogsCommand(in *invocation) *cobra.Command {
	var own logsOptions
	cmd := in.command("logs [CONTROLLER…]", groupLook,
		"follow the logs of the controllers, in whichever cluster they run now: "+strings.Join(controllerNames(), ", ")+
			", and add-ons by their names",
		func(ctx context.Context, c *console, a arguments) error {
			return runLogs(ctx, c, a, own)
		})
	cmd.Flags().DurationVar(&own.Since, "since", 0, "begin with what is not older than `10m`")
	cmd.Flags().Int64Var(&own.Tail, "tail", -1,
		"begin with the last `N` lines of each container (default 10; all with --since or --no-follow)")
	cmd.Flags().BoolVar(&own.NoFollow, "no-follow", false,
		"end behind what has been written so far, in the order of its times")
	cmd.ValidArgs = controllerNames()
	cmd.ValidArgsFunction = nil
	return cmd
}
