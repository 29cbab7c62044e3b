package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
)

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal os.Signal }

func (e *interruption) Error() string { return fmt.Sprintf("signal: %v", e.signal) }

func (e *interruption) Is(target error) bool { return target == flow.ErrInterrupted }

// UntilSignal is a context that the first signal ends in good order. The second
// ends the process at once: the journal is written before and after every step,
// so that is safe too.
func UntilSignal(stderr io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup, which means it
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		cancel(&interruption{<-signals})
		<-signals
		fmt.Fprintln(stderr, "killed by a second signal; the journal is complete, the next run resumes")
		os.Exit(ExitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// outliveReaders has a run continue to its end after the reader of its output closed the pipe: its events and its log
// are in files. Without it SIGPIPE would end the process, as it does for a target that only prints. signal.Ignore would
// also ignore the signal in children.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
