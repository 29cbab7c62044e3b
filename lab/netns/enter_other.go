//go:build unix && !linux

package netns

import (
	"context"
	"os"
	"runtime"
)

// Enter runs main on the host's loopback: this system has no network namespaces. dial is what Network.Dial connects
// with.
func Enter(ctx context.Context, dial Dialer, main func(context.Context, Network) error) error {
	return main(ctx, &hostNetwork{
		isolation: "host loopback (" + runtime.GOOS +
			" has no network namespaces); webhook servers of the providers listen on all addresses of this host",
		pid:  os.Getpid(),
		dial: dial,
	})
}
