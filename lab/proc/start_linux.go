package proc

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// attributes puts the child into a new process group, so that its descendants end with it, and makes the kernel kill it
// when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

type starter struct{}

func newStarter() starter { return starter{} }

// start starts a program without privileges, see sandbox.Confine. It does so on a thread of its own, which lives until
// done is closed, for Pdeathsig's sake, and ends then: Go ends idle threads at any time.
func (starter) start(cmd *exec.Cmd, enter func() error, done <-chan struct{}) error {
	started := make(chan error)
	sandbox.OnThread(func() {
		var err error
		if enter != nil {
			err = enter()
		}
		if err == nil {
			err = sandbox.Confine()
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			<-done
		}
	})
	return <-started
}

// awaitExit returns true once the process has ended and leaves it unreaped: as long as it is, neither its id nor that
// of its group can belong to others, and the group can be killed without a doubt.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

// awaitStop returns when every thread of a process that got SIGSTOP has stopped, or the process has ended.
func awaitStop(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// reapGroup reaps the remaining processes of a killed group. As the first process of a PID namespace the daemon is the
// parent of every orphan in it; otherwise there are none.
func reapGroup(pgid int) {
	for {
		_, err := unix.Wait4(-pgid, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			return
		}
	}
}
