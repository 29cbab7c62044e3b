//go:build unix

package crash

import "syscall"

// killProcess does not return. What the process started in groups of their own, as the lab, continues.
func killProcess() {
	pid := syscall.Getpid()
	if syscall.Getpgrp() == pid {
		pid = -pid
	}
	for {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one's own process can always be killed
	}
}
