// Command lab runs the simulated environment that Slipway rehearses in, and the stand-ins that run in it as Pods.
//
//	lab serve --dir D --bin B    run the lab in the foreground until the command ends it or the process --until-gone ends
//	lab manage --dir D --bin B   run management clusters of real launches in the foreground, without the rest of a lab
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-k8s/slipway/lab/netns"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// usageError is a mistake in the arguments.
type usageError struct{ error }

func run(ctx context.Context, args []string) int {
	err := dispatch(ctx, args)
	var (
		usage  usageError
		inside *netns.ExitError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &inside) && inside.Code > 0: // the command printed the reason itself
		return inside.Code
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "lab:", err)
		return exitUsage
	default:
		fmt.Fprintln(os.Stderr, "lab:", err)
		return exitFailed
	}
}

// commands are the commands of the daemon.
var commands = map[string]func(ctx context.Context, args []string) error{
	"serve":  serve,
	"manage": manage,
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError{errors.New("no command: want serve or manage")}
	}
	if do, ok := commands[args[0]]; ok {
		return do(ctx, args[1:])
	}
	if run, ok := standIns[args[0]]; ok {
		return run(ctx, args[1:])
	}
	return usageError{fmt.Errorf("unknown command %q: want serve or manage", args[0])}
}
