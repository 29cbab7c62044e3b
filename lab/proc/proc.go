// Package proc starts and ends the lab's child processes: each in its own process group, with its output in a log file,
// only the given environment and, on Linux, without privileges (sandbox.Confine). When the daemon ends, by whatever
// signal, the kernel ends its children (on Linux; elsewhere only an orderly stop does).
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Labels that the lab's status reads.
const (
	LabelCluster = "cluster" // name of the cluster that the process belongs to
	LabelPod     = "pod"     // namespace/name of the Pod that the process runs for
	LabelServer  = "server"  // name of the server that the process runs on
)

// maxLog is how large a log file may have grown, in bytes, when a process starts: beyond it, it is put aside once.
const maxLog = 16 << 20

// ErrStopped is returned by Start once the supervisor has been stopped.
var ErrStopped = errors.New("the lab is stopping: no process is started any more")

// Spec describes a process.
type Spec struct {
	Name    string            // name in the status; several processes may share one
	Path    string            // absolute path of the program
	Args    []string          // arguments without the program's name
	Env     []string          // the whole environment, KEY=VALUE; the daemon's own is never inherited
	Dir     string            // working folder; empty: the folder of LogFile
	LogFile string            // output and errors are appended to it; created with mode 0600
	Labels  map[string]string // for the status
	OnExit  func(Exit)        // called once, after Done is closed
	// Enter, if set, moves the thread that starts the program into namespaces, and so the program. It is called on a
	// thread that is locked and does nothing else after it.
	Enter func() error
}

// Exit is how a process ended.
type Exit struct {
	PID     int
	Code    int // exit code; -1 when a signal ended it
	Elapsed time.Duration
	Reason  string // "exit status 1", "signal: killed"
}

// Info is one line of the status.
type Info struct {
	Name      string
	PID       int // as the host's ps shows it
	Labels    map[string]string
	StartedAt time.Time
	RSSBytes  int64 // resident memory; 0 if the system does not report it
}

// Supervisor starts processes and ends all of them together.
type Supervisor struct {
	starter starter

	mu      sync.Mutex
	running []*Process // in the order of their start
	stopped bool
}

// New returns a supervisor without processes.
func New() *Supervisor {
	return &Supervisor{starter: newStarter()}
}

// Process is one run of a program.
type Process struct {
	spec    Spec
	cmd     *exec.Cmd
	started time.Time
	done    chan struct{}
	exit    Exit // valid once done is closed

	still    sync.Mutex // held to freeze or unfreeze it
	freezers int        // number of callers that keep it frozen

	mu     sync.Mutex // held to signal and to reap: a reaped id may belong to another process
	reaped bool
}

// Start runs a program. It returns as soon as the program was started; use Done to learn of its end.
func (s *Supervisor) Start(spec Spec) (*Process, error) {
	logFile, err := openLog(spec.LogFile)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	defer logFile.Close() // the child has its own copy

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append([]string{}, spec.Env...) // never nil, which would mean the daemon's
	cmd.Dir = spec.Dir
	cmd.SysProcAttr = attributes()
	p := &Process{spec: spec, cmd: cmd, done: make(chan struct{})}

	// Under the lock, so that StopAll sees every process that was started before it.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, fmt.Errorf("start %s: %w", spec.Name, ErrStopped)
	}
	p.started = time.Now()
	if err := s.starter.start(cmd, spec.Enter, p.done); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	s.running = append(s.running, p)
	go s.reap(p)
	return p, nil
}

func (s *Supervisor) reap(p *Process) {
	err := p.wait()
	p.exit = Exit{PID: p.PID(), Code: p.cmd.ProcessState.ExitCode(), Elapsed: time.Since(p.started),
		Reason: "exit status 0"}
	if err != nil {
		p.exit.Reason = err.Error()
	}
	s.mu.Lock()
	s.running = slices.DeleteFunc(s.running, func(o *Process) bool { return o == p })
	s.mu.Unlock()
	close(p.done)
	if p.spec.OnExit != nil {
		p.spec.OnExit(p.exit)
	}
}

// wait reaps the process and kills the remaining processes of its group.
func (p *Process) wait() error {
	if !awaitExit(p.PID()) {
		err := p.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reaped = true
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // usually the group is empty
	p.reaped = true
	err := p.cmd.Wait() // at once: the process has ended
	reapGroup(p.PID())
	return err
}

// signal signals the whole group; a group that has ended is no error.
func (p *Process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.PID(), sig)
	}
}

// List returns the running processes in the order of their start.
func (s *Supervisor) List() []Info {
	s.mu.Lock()
	running := slices.Clone(s.running)
	s.mu.Unlock()
	host := hostPIDs()
	infos := make([]Info, 0, len(running))
	for _, p := range running {
		pid := host.of(p.PID())
		infos = append(infos, Info{Name: p.spec.Name, PID: pid, Labels: p.spec.Labels, StartedAt: p.started,
			RSSBytes: rss(pid)})
	}
	return infos
}

// StopAll ends every process, the last started first and each as Process.Stop does, and refuses to start others from
// now on. It returns once all of them are gone.
func (s *Supervisor) StopAll(ctx context.Context, grace time.Duration) error {
	s.mu.Lock()
	s.stopped = true
	running := slices.Clone(s.running)
	s.mu.Unlock()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, p := range slices.Backward(running) {
		wg.Go(func() {
			if err := p.Stop(ctx, grace); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// PID returns the process's id as the daemon sees it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and nothing of its group is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended; ok is false while it runs.
func (p *Process) Exit() (exit Exit, ok bool) {
	select {
	case <-p.done:
		return p.exit, true
	default:
		return Exit{}, false
	}
}

// Stop sends SIGTERM to the process's group, and SIGKILL when grace has passed or ctx is done, and returns when it has
// ended. It succeeds if the process has already ended.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGCONT) // one that is frozen would not hear it
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	p.signal(syscall.SIGKILL)
	// SIGKILL cannot be refused; only a process stuck in the kernel outlasts it.
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("stop %s: process %d is still there 10 s after SIGKILL", p.spec.Name, p.PID())
	}
}

func openLog(path string) (*os.File, error) {
	if path == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
