// Command bootstrap makes a Talos Linux Kubernetes cluster on Hetzner Cloud
// through Cluster API, or rehearses that on this machine.
package main

import (
	"fmt"
	"os"

	// Roots for where the system has none, as in the container image. Those of the system, and SSL_CERT_FILE, go first.
	_ "golang.org/x/crypto/x509roots/fallback"

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
