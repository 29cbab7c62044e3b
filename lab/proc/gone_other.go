//go:build unix && !linux

package proc

import (
	"fmt"
	"syscall"
	"time"
)

// Gone returns a channel that is closed soon after a process, of whatever parent, has ended.
// One that has ended already is an error.
func Gone(pid int) (<-chan struct{}, error) {
	const lookEvery = 500 * time.Millisecond
	if err := syscall.Kill(pid, 0); err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ticker := time.NewTicker(lookEvery); ; <-ticker.C {
			if syscall.Kill(pid, 0) == syscall.ESRCH {
				ticker.Stop()
				return
			}
		}
	}()
	return gone, nil
}
