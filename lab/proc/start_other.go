//go:build unix && !linux

package proc

import (
	"errors"
	"os/exec"
	"syscall"
)

// attributes gives the child a process group, so that what it starts is ended with it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

type starter struct{}

func newStarter() starter { return starter{} }

func (starter) start(cmd *exec.Cmd, enter func() error, _ <-chan struct{}) error {
	if enter != nil {
		return errors.New("only Linux has namespaces")
	}
	return cmd.Start()
}

// awaitExit is false at once: without waitid a process can only be waited for and reaped in one.
func awaitExit(int) bool { return false }

// reapGroup does nothing: orphans belong to the system's first process.
func reapGroup(int) {}

// awaitStop returns immediately: a process stops soon after SIGSTOP.
func awaitStop(int) {}
