package crash

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Both scripts wait until their input ends, which it does when the suite ends for any reason. They read the process
// group of the running command, and kill it.
const groupScript = `
group=
while read -r line; do group=$line; done
if [ -n "$group" ] && [ "$group" -gt 1 ]; then kill -s KILL -- "-$group" 2>/dev/null; fi
`

// labScript ends the lab, too: a lab that does not answer yet ends through its --until-gone.
const labScript = groupScript + `
tries=0
while [ $tries -lt 60 ]; do
	"$1" lab down --state-dir "$2" >/dev/null 2>&1
	pid=$(cat "$2/lab/lab.lock" 2>/dev/null)
	if [ -z "$pid" ] || ! kill -0 "$pid" 2>/dev/null; then exit 0; fi
	tries=$((tries+1)); sleep 1
done
exit 1
`

// folderScript removes the folder in which the command was at work.
const folderScript = groupScript + `rm -rf -- "$1"`

// guard is a process that outlives the suite for as long as it takes to clean up.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func startGuard(dir, script string, args ...string) (*guard, error) {
	cmd := exec.Command("sh", slices.Concat([]string{"-c", script, "crash-guard"}, args)...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the suite
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the cleanup process of the suite: %w", err)
	}
	return &guard{cmd, pipe}, nil
}

// grouped is a command that leads a process group, which is killed as a whole when the context ends. It begins with the
// line that start writes, and never where the suite ends before.
func grouped(ctx context.Context, words ...string) *exec.Cmd {
	_, missing := exec.LookPath(words[0])
	const begin = `read -r line && exec "$0" "$@" </dev/null`
	cmd := exec.CommandContext(ctx, "sh", slices.Concat([]string{"-c", begin}, words)...)
	if cmd.Err == nil && !strings.Contains(words[0], "/") {
		cmd.Err = missing // as without the shell
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// start starts a command that grouped has made, once the cleanup process knows its group.
func (g *guard) start(cmd *exec.Cmd) error {
	begin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.watch(cmd.Process.Pid)
	_, _ = io.WriteString(begin, "\n") // where the command was killed meanwhile, Wait says so
	return nil
}

// watch sets the running process group; 0: none.
func (g *guard) watch(pid int) {
	line := "\n"
	if pid > 0 {
		line = fmt.Sprintf("%d\n", pid)
	}
	_, _ = io.WriteString(g.pipe, line) // if it has ended, end reports it
}

// end makes it clean up, and waits for that.
func (g *guard) end() error {
	if err := g.pipe.Close(); err != nil {
		return err
	}
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("not all processes of the suite have ended: %w", err)
	}
	return nil
}
