//go:build unix && !linux

package netns

import (
	"context"
	"os"
	"runtime"
)

// Enter runs main on the host's loopback: this system has no network namespaces.
func Enter(ctx context.Context, main func(context.Context, Network) error) error {
	return main(ctx, &hostNetwork{
		isolation: "host loopback (" + runtime.GOOS +
			" has no network namespaces); webhook servers of the providers listen on all addresses of this host",
		pid: os.Getpid(),
	})
}
