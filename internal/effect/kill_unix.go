//go:build unix

package effect

import "syscall"

// killSelf does not return. What the process started in groups of their own, as the lab, lives on.
func killSelf() {
	pid := syscall.Getpid()
	if syscall.Getpgrp() == pid {
		pid = -pid
	}
	for {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one's own process can always be killed
	}
}
