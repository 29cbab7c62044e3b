//go:build !linux

package local

import (
	"context"
	"fmt"
	"runtime"
)

// Possible says why a local management cluster does not run on this system.
func Possible(context.Context) error {
	return fmt.Errorf("MANAGEMENT=local runs programs for Linux, in namespaces of Linux, and this machine runs %s: use "+
		"MANAGEMENT=kind with a container engine, MANAGEMENT=existing, or run the command on a Linux machine",
		runtime.GOOS)
}
