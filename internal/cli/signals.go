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
		fmt.Fprintln(stderr, "killed by a second signal; the journal is whole, the next run goes on")
		os.Exit(ExitInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// outliveReaders has a run go on, and end as it should, where whoever reads its
// output has gone: its events and its log are in files. Without it the next line
// would end the process, as it does for a target that only prints. Signals that
// are asked for are not ignored in children, and nobody waits for these.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
