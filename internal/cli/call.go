package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// call is one call of the command: the console, and what its command tree has read.
type call struct {
	*console
	arguments
	only  bool // parse, and do nothing
	begun bool // the arguments are right, and the command has begun
}

// arguments is the command line, taken apart, with the flags of several commands. Those of one are beside it. Nothing
// in it was looked up yet but the names of variables.
type arguments struct {
	session.Request
	Output   string // "text", "json", or a form that the target has besides
	Prune    bool   // of image: delete the snapshots that are too many
	Packer   bool   // of image: print the call of Packer
	Abort    bool   // of pivot: put back what was not finished
	Apply    operations.ApplyOptions
	DryRun   bool   // only say what would be done
	Identity string // of backup, restore and drill: file with the keys; empty: BACKUP_IDENTITY_FILE
	// Of those that read a backup: take it although it is a plain file, or although nothing shows who made it.
	Unencrypted, Unauthenticated bool
}

// word is the argument of a number, where the command was given one. The names of commands are counted, too.
func (c *call) word(number int) string {
	if number < len(c.Targets) {
		return c.Targets[number]
	}
	return ""
}

// caller is the call as sessions see it.
func (c *call) caller() *session.Caller {
	return &session.Caller{
		Environment: c.environment, WorkDir: c.workDir, Hide: c.hide, Faults: c.faults, Equip: c.equip, Charts: c.charts,
		Memory: &c.memory,
		Notes: func(line string) { // before a run has its display
			fmt.Fprint(c.stderr, text.Fold("note: "+line+"\n", errorWidth(c.console)))
		},
		CommandLine: func(target ...string) string { return commandLine(c, target...) },
	}
}

// load is the cluster that was asked for, with its configuration, which has values besides those that were given.
func (c *call) load(values ...settings.Assignment) (session.Cluster, error) {
	q := c.Request
	q.Values = slices.Concat(q.Values, values)
	return session.Load(c.caller(), q)
}

// backupValues puts --identity in the place of its variable.
func (c *call) backupValues() []settings.Assignment {
	if c.Identity == "" {
		return nil
	}
	return []settings.Assignment{settings.Assign("BACKUP_IDENTITY_FILE", c.Identity)}
}

// operate runs an operation that has no graph of its own, with the journal locked.
func (c *call) operate(ctx context.Context, k session.Cluster, do func(context.Context, *session.Session) error) error {
	outliveReaders()
	return k.Operate(ctx, c.displays(), do)
}

// refuseUnasked refuses what asks the operator, where that is not possible. instead says what can be done without.
func (c *call) refuseUnasked(asks, instead string) error {
	if c.Yes || c.canPrompt() {
		return nil
	}
	return usage.Errorf("%s, and the standard input is no terminal: --yes answers beforehand, %s", asks, instead)
}

// displays show a run as stdout is able to and --output says.
func (c *call) displays() []session.Display {
	switch {
	case c.Output == "json":
		return []session.Display{session.NewJSONDisplay(c.stdout)}
	case c.width() > 0:
		return []session.Display{ui.NewTerminalDisplay(c.stdout, c.size, c.coloured())}
	}
	return []session.Display{&session.PlainDisplay{Out: c.stdout}}
}

// coloured reports whether stdout is a terminal whose operator wants colours.
func (c *call) coloured() bool { return c.width() > 0 && c.environment["NO_COLOR"] == "" }

// hub shows work that has no session. It has to be closed.
func (c *call) hub(run string) *session.Hub {
	return &session.Hub{Run: run, Hide: c.hide, Displays: c.displays()}
}

// print prints a result as --output says: as a document, or as text in lines of a width; 0: lines are not wrapped.
func (c *call) print(result any, asText func(out io.Writer, width int) error) error {
	if c.Output == "json" {
		return ui.PrintJSON(c.stdout, result)
	}
	return asText(c.stdout, c.width())
}

// printLine is print for what events may come before or after: the document is one line.
func (c *call) printLine(result any, asText func(out io.Writer, width int) error) error {
	if c.Output == "json" {
		return ui.PrintJSONLine(c.stdout, result)
	}
	return asText(c.stdout, c.width())
}

// say prints a sentence.
func (c *call) say(format string, args ...any) error {
	_, err := fmt.Fprintf(c.stdout, format+"\n", args...)
	return err
}
