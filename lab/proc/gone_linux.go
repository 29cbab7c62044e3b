package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Gone returns a channel that is closed when a process, of whatever parent, has ended.
// One that has ended already is an error.
func Gone(pid int) (<-chan struct{}, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		process := os.NewFile(uintptr(fd), "pidfd")
		defer process.Close()
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) // readable: it has ended
			if err != unix.EINTR {
				return
			}
		}
	}()
	return gone, nil
}
