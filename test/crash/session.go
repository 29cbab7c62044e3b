// Package crash kills the built command at every effect of its runs and judges the result.
//
// A case loads the lab as it was before a stage of the bootstrap, runs the real command with SLIPWAY_CRASH (or with a
// fault of the lab or of the machine), then again until it ends, and has package judge judge the result. Cases are
// enumerated from the effects that an undisturbed run recorded. The ledger records the result of each, so that a suite
// that was itself killed continues.
package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/test/judge"
)

const (
	// planted replaces the token of a real project: no run may reveal it.
	planted = "plantedPlantedPlantedPlantedPlantedPlantedPlantedPlanted64chars"
	// ClusterName is the cluster's in every case: the default.
	ClusterName = "k8s"
	// runWithin bounds one run of the command.
	runWithin = 8 * time.Minute
	// argumentsEvery is how often the argument lists of all processes are read during a run.
	argumentsEvery = 200 * time.Millisecond
)

// Session is one state folder with a lab, and the command that works in it.
type Session struct {
	Command string // the built command
	Source  string // the repository
	State   string // --state-dir
	Log     io.Writer
	// Environment has variables of the runs, beside the suite's own; nil: none.
	Environment []string

	guard *guard

	mu        sync.Mutex
	arguments map[string]bool // lists that a process had while a run was at work
	output    bytes.Buffer    // of all runs since the last Begin
}

// Open opens a session in a folder. Its lab ends with Close, or with this process.
func Open(command, source, state string, log io.Writer) (*Session, error) {
	s := &Session{Command: command, Source: source, State: state, Log: log, arguments: map[string]bool{}}
	var err error
	s.guard, err = startGuard(source, labScript, command, state)
	return s, err
}

// Close ends everything that the session started, and returns when it has ended.
func (s *Session) Close() error { return s.guard.end() }

// Place is the place of the session for package judge.
func (s *Session) Place() judge.Place { return judge.Place{State: s.State, Cluster: ClusterName} }

// Begin discards the output of earlier runs.
func (s *Session) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.output.Reset()
	clear(s.arguments)
}

// Seen is everything that was printed, and every argument list, since Begin.
func (s *Session) Seen() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	lists := strings.Join(slices.Collect(mapKeys(s.arguments)), "\n")
	return map[string][]byte{"the output": slices.Clone(s.output.Bytes()), "a process's arguments": []byte(lists)}
}

func mapKeys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Run is one run of the command.
type Run struct {
	Args    []string
	Crash   []string      // values of SLIPWAY_CRASH: whichever comes first ends the run; none: it runs to its end
	KillAt  time.Duration // the process group is killed then; 0: never
	Wrap    []string      // words before those of the command
	Timeout time.Duration // 0: runWithin
}

// Outcome is the result of a run.
type Outcome struct {
	Exit    int  // -1: killed
	Killed  bool // by SIGKILL
	Began   time.Time
	Elapsed time.Duration
	Output  string
}

// Do runs the command as the leader of a process group. A lab that it starts ends with this process, so that the
// suite's end also ends a lab that is just starting.
func (s *Session) Do(outer context.Context, r Run) (Outcome, error) {
	within := r.Timeout
	if within == 0 {
		within = runWithin
	}
	ctx, cancel := context.WithTimeout(outer, within)
	defer cancel()
	cmd := grouped(ctx, slices.Concat(r.Wrap, []string{s.Command}, r.Args,
		[]string{"--state-dir", s.State, "--lab-until-gone", strconv.Itoa(os.Getpid())})...)
	cmd.Dir = s.Source
	cmd.Env = s.environment()
	if len(r.Crash) > 0 {
		cmd.Env = append(cmd.Env, crashVariable+"="+strings.Join(r.Crash, "\n"))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	o := Outcome{Began: time.Now()}
	if err := s.guard.start(cmd); err != nil {
		return o, err
	}
	stop := s.lookAtArguments()
	if r.KillAt > 0 {
		timer := time.AfterFunc(r.KillAt, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // it may have ended
		defer timer.Stop()
	}
	err := cmd.Wait()
	stop()
	s.guard.watch(0)
	o.Elapsed, o.Output, o.Exit = time.Since(o.Began), out.String(), cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() &&
		status.Signal() == syscall.SIGKILL {
		o.Killed = true
	}
	s.mu.Lock()
	s.output.Write(out.Bytes())
	s.mu.Unlock()
	fmt.Fprintf(s.Log, "$ %s %s%s\n%s[%.1fs, exit %d]\n", strings.Join(r.Args, " "), crashVariable, r.Crash, o.Output,
		o.Elapsed.Seconds(), o.Exit)
	if outer.Err() != nil {
		return o, fmt.Errorf("run %s: %w", strings.Join(r.Args, " "), outer.Err())
	}
	if ctx.Err() != nil {
		return o, fmt.Errorf("run %s: it did not end within %s; it last said: %s", strings.Join(r.Args, " "), within,
			lastLine(o.Output))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return o, err
	}
	return o, nil
}

// crashVariable is the command's variable for the place at which it kills itself.
const crashVariable = "SLIPWAY_CRASH"

// environment is the suite's own, without what would change a run, and with a token that must not be used.
func (s *Session) environment() []string {
	list := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == crashVariable || strings.HasPrefix(name, "HCLOUD_") || name == "HTTPS_PROXY" || name == "https_proxy"
	})
	list = append(list, "HCLOUD_TOKEN="+planted, "NO_COLOR=1", "LAB_PROGRAMS=source")
	return append(list, s.Environment...)
}

// lookAtArguments collects the argument lists of processes until it is stopped.
func (s *Session) lookAtArguments() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(argumentsEvery)
		defer ticker.Stop()
		looks := map[string]int{} // at a process
		for {
			looks = s.look(looks)
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() { close(done); <-ended }
}

// look reads the arguments of the processes that there are, of each a few times: it has its parent's until it becomes
// what it is to be, and keeps its own from then on.
func (s *Session) look(before map[string]int) (looks map[string]int) {
	const enough = 5
	looks = map[string]int{}
	lists, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed; elsewhere than on Linux there are none
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, process := range lists {
		looks[process] = before[process] + 1
		if looks[process] > enough {
			continue
		}
		if data, err := os.ReadFile(filepath.Join(process, "cmdline")); err == nil { // else it has ended meanwhile
			s.arguments[string(data)] = true
		}
	}
	return looks
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
