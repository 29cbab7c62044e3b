// Command bootstrap makes a Talos Linux Kubernetes cluster on Hetzner Cloud
// through Cluster API, or rehearses that on this machine. It is the only place
// where the parts of Slipway are put together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2   // bad usage or configuration: nothing was made
	exitInterrupted = 130 // as a shell says of a process that SIGINT ended
)

func main() {
	workDir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(exitFailed)
	}
	c := &console{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		environment: settings.Environ(os.Environ()), workDir: workDir,
		size: func() (columns, rows int) { return terminalSize(os.Stdout) }, hide: &redact.Redactor{}, readFaults: faultReader(),
	}
	keepFromChildren()
	ctx, stop := untilSignal(os.Stderr)
	defer stop()
	os.Exit(c.execute(ctx, os.Args[1:]))
}

// keepFromChildren takes care that from here on no child process inherits a
// token.
func keepFromChildren() {
	for _, name := range settings.TokenVariables() {
		os.Unsetenv(name)
	}
}

// execute does what the arguments say and returns the exit code.
func (c *console) execute(ctx context.Context, args []string) int {
	for _, name := range settings.TokenVariables() {
		c.hide.Learn(c.environment[name])
	}
	a, err := parse(c, args)
	c.given = a
	if err == nil {
		err = dispatch(ctx, c, a)
	}
	// Not every library passes on why its context ended.
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, flow.ErrInterrupted) && !errors.Is(err, flow.ErrInterrupted) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		fmt.Fprint(c.stderr, text.Fold(c.hide.Text(complaint(err))+"\n", errorWidth(c)))
	}
	return exitCode(err)
}

// parse reads the arguments, and what the environment wants of every run. Every
// error is a usageError.
func parse(c *console, args []string) (a arguments, err error) {
	if text := c.environment[effect.CrashVariable]; text != "" {
		if c.faults, err = c.wantedFaults(text); err != nil {
			return arguments{}, &usage.Error{Err: err}
		}
	}
	a, err = parseArguments(args)
	a.workDir = c.workDir
	return a, err
}

// wantedFaults refuses to run as if no fault had been asked for where this command cannot inject any.
func (c *console) wantedFaults(text string) (func() effect.Faults, error) {
	if c.readFaults == nil {
		return nil, fmt.Errorf("%s is set, and this command is built without fault injection: unset it, or build with -tags crash",
			effect.CrashVariable)
	}
	return c.readFaults(text)
}

func dispatch(ctx context.Context, c *console, a arguments) error {
	if a.Options.Help {
		return helpFlag(c, a.Targets)
	}
	if t, alone := asked(a.Targets); alone {
		return t.do(ctx, c, a)
	}
	if a.Options.DryRun {
		return runPlan(ctx, c, a)
	}
	if a.Options.Packer {
		return runPacker(c, a)
	}
	return runTargets(ctx, c, a)
}

// exitCode tells apart who has to do something about an error.
func exitCode(err error) int {
	var (
		bad     *usage.Error
		invalid *flow.InvalidError
		unknown *flow.UnknownStepError
		sealed  *flow.SealedError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, flow.ErrInterrupted):
		return exitInterrupted
	case errors.As(err, &bad), errors.As(err, &invalid), errors.As(err, &unknown), errors.As(err, &sealed) && refused(sealed):
		return exitUsage
	default:
		return exitFailed
	}
}

// refused tells whether a target was refused, and nothing run. Otherwise a run has found that what a sealed step made is gone.
func refused(e *flow.SealedError) bool { return e.Step != e.By }

// complaint is what a person reads about an error: each of several on a line of
// its own.
func complaint(err error) string {
	if told, ok := errors.AsType[*interruptedError](err); ok {
		return told.Error()
	}
	if errors.Is(err, flow.ErrInterrupted) {
		return "interrupted: run the same command again to go on"
	}
	lines := strings.Split(err.Error(), "\n")
	return "error: " + strings.Join(lines, "\n       ")
}

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal os.Signal }

func (e *interruption) Error() string        { return fmt.Sprintf("signal: %v", e.signal) }
func (e *interruption) Is(target error) bool { return target == flow.ErrInterrupted }

// untilSignal is a context that the first signal ends in good order. The second
// ends the process at once: the journal is written before and after every step,
// so that is safe too.
func untilSignal(stderr io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup, which means it
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		cancel(&interruption{<-signals})
		<-signals
		fmt.Fprintln(stderr, "killed by a second signal; the journal is whole, the next run goes on")
		os.Exit(exitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// outliveReaders has a run go on, and end as it should, where whoever reads its
// output has gone: its events and its log are in files. Without it the next line
// would end the process, as it does for a target that only prints. Signals that
// are asked for are not ignored in children, and nobody waits for these.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// version is the module's version as Go recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
