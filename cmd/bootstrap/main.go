// Command bootstrap makes a Talos Linux Kubernetes cluster on Hetzner Cloud
// through Cluster API, or rehearses that on this machine.
package main

import (
	"fmt"
	"os"

	"github.com/slipway-k8s/slipway/internal/cli"
)

func main() {
	workDir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(cli.ExitFailed)
	}
	ctx, stop := cli.UntilSignal(os.Stderr)
	defer stop()
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Main(ctx, streams, os.Environ(), workDir, os.Args[1:]))
}
