package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/inotify"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

const (
	// upWithin is how long a daemon that was started may take to answer: a lab resumes clusters that it had.
	upWithin = 90 * time.Second
	// downWithin is how long a daemon may take to end everything; it bounds itself a little below.
	downWithin = 30 * time.Second
	// AnswerWithin is how long a daemon that is up may take to say so.
	AnswerWithin = 5 * time.Second
	// lookEvery is how often a daemon that comes or goes is looked at; its socket announces nothing.
	lookEvery = 50 * time.Millisecond
)

// Daemon is a process in the background that answers on the control socket of its folder: a lab, or a local management
// cluster.
type Daemon struct {
	Name        string // as errors call it: "the lab"
	Dir         string
	LogFile     string
	Client      *Client
	Environment []string // all of it
}

// Answering asks the daemon for its info, within a moment.
func (d Daemon) Answering(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	return d.Client.Info(ctx)
}

// Start starts the daemon in a session of its own, so that neither a closed
// terminal nor Ctrl-C reaches it, and waits until it answers.
func (d Daemon) Start(ctx context.Context, program string, args []string, say flow.Say) (Info, error) {
	if use, known := inotify.Of("/proc", os.Getuid()); known {
		if err := checkInotify(use, say); err != nil {
			return Info{}, fmt.Errorf("start %s: %w", d.Name, err)
		}
	}
	log, err := os.OpenFile(d.LogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return Info{}, fmt.Errorf("open the log of %s: %w", d.Name, err)
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return Info{}, err
	}
	daemon := child.Command(context.WithoutCancel(ctx), program, args...)
	daemon.Dir, daemon.Env = d.Dir, d.Environment
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		return Info{}, fmt.Errorf("start %s: %w", d.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	say("starting (process %d, log in %s)", daemon.Process.Pid, d.LogFile)

	ctx, cancel := context.WithTimeoutCause(ctx, upWithin, fmt.Errorf("it did not answer within %s", upWithin))
	defer cancel()
	tick := time.Tick(lookEvery)
	for {
		info, err := d.Answering(ctx)
		if err == nil {
			say("up: process %d, log in %s", info.PID, d.LogFile)
			return info, nil
		}
		if !errors.Is(err, ErrDown) && ctx.Err() == nil {
			return Info{}, err
		}
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("it exited")
			}
			return Info{}, d.failed(err, begin)
		case <-ctx.Done():
			return Info{}, d.failed(context.Cause(ctx), begin)
		case <-tick:
		}
	}
}

// failed tells why a daemon did not come up, with the end of what it logged since.
func (d Daemon) failed(err error, begin int64) error {
	const lines = 15
	data, readErr := os.ReadFile(d.LogFile)
	if readErr != nil || int64(len(data)) <= begin {
		return fmt.Errorf("start %s: %w; it wrote nothing to %s", d.Name, err, d.LogFile)
	}
	tail := strings.Split(strings.TrimSpace(string(data[begin:])), "\n")
	tail = tail[max(0, len(tail)-lines):]
	for i := range tail {
		tail[i] = "  " + text.Printable(tail[i])
	}
	return fmt.Errorf("start %s: %w; the end of %s:\n%s", d.Name, err, d.LogFile, strings.Join(tail, "\n"))
}

// Down ends the daemon and everything that it started, and returns when it is
// gone. It reports whether there was one.
func (d Daemon) Down(ctx context.Context) (bool, error) {
	info, err := d.Answering(ctx)
	if errors.Is(err, ErrDown) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downWithin, fmt.Errorf("it did not end within %s", downWithin))
	defer cancel()
	if err := d.Client.Do(ctx, "POST", "/v1/down", nil); err != nil && !errors.Is(err, ErrDown) {
		return true, fmt.Errorf("end %s (process %d): %w", d.Name, info.PID, err)
	}
	tick := time.Tick(lookEvery)
	for {
		_, err := d.Answering(ctx)
		if errors.Is(err, ErrDown) && !statedir.Lives(info.PID) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return true, fmt.Errorf("end %s (process %d): %w", d.Name, info.PID, context.Cause(ctx))
		case <-tick:
		}
	}
}
