// Package cli is the command line: targets, their flags, what they print and their exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Exit codes.
const (
	ExitDone        = 0   // done
	ExitFailed      = 1   // failed: the message on standard error says why, and what to do next
	ExitUsage       = 2   // bad usage or configuration: nothing was changed
	ExitChanges     = 2   // of plan --detailed-exitcode: a run would change something
	ExitInterrupted = 130 // interrupted by SIGINT or SIGTERM: the same command resumes
)

// Streams are the process's own.
type Streams struct {
	In       io.Reader // answers of the operator; nil: none can be asked
	Out, Err *os.File
}

// Main does what the arguments say and returns the exit code. It removes secrets from the environment that child
// processes inherit.
func Main(ctx context.Context, streams Streams, environment []string, workDir string, args []string) int {
	c := &console{
		stdin: streams.In, stdout: streams.Out, stderr: streams.Err,
		environment: settings.Environ(environment), workDir: workDir,
		size: func() (columns, rows int) { return terminalSize(streams.Out) }, hide: &redact.Redactor{},
		readFaults: faultReader(),
	}
	child.Withdraw()
	return c.execute(ctx, args)
}

// execute does what the arguments say and returns the exit code.
func (c *console) execute(ctx context.Context, args []string) int {
	for _, name := range child.SecretVariables() {
		c.hide.Learn(c.environment[name])
	}
	err := c.readFaultsWanted()
	if err == nil {
		one := call{console: c}
		one.WorkDir = c.workDir
		err = one.execute(ctx, args)
	}
	// Not every library passes on why its context ended.
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, flow.ErrInterrupted) &&
		!errors.Is(err, flow.ErrInterrupted) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil && !errors.Is(err, errChanges) {
		fmt.Fprint(c.stderr, text.Fold(c.hide.Text(complaint(err, errorWidth(c)))+"\n", errorWidth(c)))
	}
	return exitCode(err)
}

// readFaultsWanted reads where the crash suite wants runs to end themselves. It refuses to run as if no fault had been
// asked for where this command cannot inject any. Every error is a usage.Error.
func (c *console) readFaultsWanted() (err error) {
	text := c.environment[effect.CrashVariable]
	switch {
	case text == "":
		return nil
	case c.readFaults == nil:
		return usage.Errorf("%s is set, and this command is built without fault injection: unset it, or build with "+
			"-tags crash", effect.CrashVariable)
	}
	if c.faults, err = c.readFaults(text); err != nil {
		return &usage.Error{Err: err}
	}
	return nil
}

// exitCode distinguishes a mistake of the operator, an interruption and other errors.
func exitCode(err error) int {
	var (
		bad     *usage.Error
		invalid *flow.InvalidError
		unknown *flow.UnknownStepError
		sealed  *flow.SealedError
	)
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, flow.ErrInterrupted):
		return ExitInterrupted
	case errors.Is(err, errChanges):
		return ExitChanges
	case errors.As(err, new(*planFailedError)):
		return ExitFailed
	case errors.As(err, &bad), errors.As(err, &invalid), errors.As(err, &unknown), errors.As(err, &sealed) &&
		session.TargetRefused(sealed):
		return ExitUsage
	default:
		return ExitFailed
	}
}

// complaint is what a person reads about an error: each of several on a line of its own, and so is each cause that a
// wait saw last. What Talos's client wraps around a cause is in the events of the run.
func complaint(err error, width int) string {
	if told, ok := errors.AsType[*session.InterruptedError](err); ok {
		return told.Error()
	}
	if errors.Is(err, flow.ErrInterrupted) {
		return "interrupted: run the same command again to resume"
	}
	const seenLast, indent = "last seen: ", "       "
	var lines []string
	for line := range strings.SplitSeq(text.Plainly(err.Error()), "\n") {
		head, seen, waited := strings.Cut(line, seenLast)
		room := width - len(indent+"  ") - 1
		if width == 0 {
			room = len(seen) // no terminal
		}
		causes := text.Causes(seen, room)
		if !waited || len(causes) == 1 {
			lines = append(lines, line)
			continue
		}
		lines = append(lines, head+strings.TrimSpace(seenLast))
		for _, cause := range causes {
			lines = append(lines, "  "+cause)
		}
	}
	return "error: " + strings.Join(lines, "\n"+indent)
}
