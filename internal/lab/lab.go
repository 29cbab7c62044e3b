// Package lab drives the lab, which is a program of its own: it builds, starts and ends it, speaks to it, and saves
// and loads its state.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// upWithin is how long a started lab may take to answer: it resumes clusters that it had.
	upWithin = 90 * time.Second
	// downWithin is how long a lab may take to end everything; it bounds itself a little below.
	downWithin = 30 * time.Second
	// AnswerWithin is how long a lab that is up may take to say so.
	AnswerWithin = 5 * time.Second
	// lookEvery is how often a lab that comes or goes is looked at; its socket announces nothing.
	lookEvery = 50 * time.Millisecond
)

// NewestAPI is the date of the Hetzner API that the lab simulates unless told otherwise.
const NewestAPI = "2026-11"

// APIDates are the dates of the Hetzner API that the lab can simulate, the oldest first: those of package lab/cloud.
func APIDates() []string { return []string{"2026-02", NewestAPI} }

// daemonFile is the daemon, in the lab's folder. go build puts another file in
// its place, and leaves the old one as it is to whoever runs it.
const daemonFile = "bin/lab"

// Lab is the lab of one folder, up or not.
type Lab struct {
	Dir     string
	Latency string // "fast" or "real"
	API     string // date of the simulated Hetzner API; empty: NewestAPI
	Images  string // file with images and programs; empty: none
	Until   int    // process with whose end it ends; 0: none
	Client  *Client

	WorkDir     string
	Environment map[string]string
	CommandLine func(target ...string) string // a command that the operator types for this lab
}

// Up makes sure that the lab is up. One that is up already is used as it is.
func (l *Lab) Up(ctx context.Context, say flow.Say) (Info, error) {
	if info, err := l.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return info, err
	}
	builder, err := l.builder()
	if err != nil {
		return Info{}, err
	}
	program := filepath.Join(l.Dir, daemonFile)
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		return Info{}, fmt.Errorf("create the lab's folder: %w", err)
	}
	unlock, err := waitForLock(ctx, filepath.Join(l.Dir, "start.lock"), "starting this lab", say)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	if info, err := l.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return info, err // started by whom we waited for
	}
	upstream, err := builder.upstream(ctx, say)
	if err != nil {
		return Info{}, err
	}
	if err := builder.daemon(ctx, program, say); err != nil {
		return Info{}, err
	}
	return l.start(ctx, program, upstream, say)
}

// Possible is nil if the lab is up or its programs can be built. It creates nothing in the lab's folder.
func (l *Lab) Possible(ctx context.Context) error {
	if _, err := l.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return err
	}
	_, err := l.builder()
	return err
}

func (l *Lab) builder() (*builder, error) {
	b, err := newBuilder(l.WorkDir, l.Environment)
	if err != nil {
		return nil, fmt.Errorf("no lab is up in %s, and none can be built: %w; one that is up can be used from any folder: "+
			"in the clone, run %s", l.Dir, err, platform.ShellCommand("lab", "up", "--state-dir", filepath.Dir(l.Dir)))
	}
	return b, nil
}

// Answering asks the lab for its info, within a moment.
func (l *Lab) Answering(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	return l.Client.Info(ctx)
}

// start starts the daemon in a session of its own, so that neither a closed
// terminal nor Ctrl-C reaches it, and waits until it answers.
func (l *Lab) start(ctx context.Context, program, upstream string, say flow.Say) (Info, error) {
	args := []string{"serve", "--dir", l.Dir, "--latency", l.Latency, "--bin", upstream}
	if l.API != "" {
		args = append(args, "--api", l.API)
	}
	if l.Images != "" {
		args = append(args, "--images", l.Images)
	}
	if l.Until != 0 {
		args = append(args, "--until-gone", strconv.Itoa(l.Until))
	}
	logPath := filepath.Join(l.Dir, "lab.log")
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return Info{}, fmt.Errorf("open the lab's log: %w", err)
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return Info{}, err
	}
	daemon := exec.Command(program, args...)
	daemon.Dir, daemon.Env = l.Dir, daemonEnvironment(l.Environment)
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		return Info{}, fmt.Errorf("start the lab: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	say("starting (process %d, log in %s)", daemon.Process.Pid, logPath)

	ctx, cancel := context.WithTimeoutCause(ctx, upWithin, fmt.Errorf("it did not answer within %s", upWithin))
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		info, err := l.Answering(ctx)
		if err == nil {
			say("up: process %d, log in %s", info.PID, logPath)
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
			return Info{}, l.failed(err, logPath, begin)
		case <-ctx.Done():
			return Info{}, l.failed(context.Cause(ctx), logPath, begin)
		case <-ticker.C:
		}
	}
}

// failed tells why a lab did not come up, with the end of what it logged since.
func (l *Lab) failed(err error, logPath string, begin int64) error {
	const lines = 15
	data, readErr := os.ReadFile(logPath)
	if readErr != nil || int64(len(data)) <= begin {
		return fmt.Errorf("start the lab: %w; it wrote nothing to %s", err, logPath)
	}
	tail := strings.Split(strings.TrimSpace(string(data[begin:])), "\n")
	tail = tail[max(0, len(tail)-lines):]
	for i := range tail {
		tail[i] = "  " + text.Printable(tail[i])
	}
	return fmt.Errorf("start the lab: %w; the end of %s:\n%s", err, logPath, strings.Join(tail, "\n"))
}

// daemonEnvironment is what the daemon gets to see: where things are, and nothing
// that a password might be in.
func daemonEnvironment(environment map[string]string) []string {
	names := []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "LANG", "LC_ALL",
		"TZ"}
	var list []string
	for _, name := range names {
		if value, ok := environment[name]; ok {
			list = append(list, name+"="+value)
		}
	}
	slices.Sort(list)
	return list
}

// Down ends the lab and everything that it started, and returns when it is
// gone. It reports whether there was one.
func (l *Lab) Down(ctx context.Context) (bool, error) {
	info, err := l.Answering(ctx)
	if errors.Is(err, ErrDown) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downWithin, fmt.Errorf("it did not end within %s", downWithin))
	defer cancel()
	if err := l.Client.Do(ctx, "POST", "/v1/down", nil); err != nil && !errors.Is(err, ErrDown) {
		return true, fmt.Errorf("end the lab (process %d): %w", info.PID, err)
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		_, err := l.Answering(ctx)
		if errors.Is(err, ErrDown) && !alive(info.PID) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return true, fmt.Errorf("end the lab (process %d): %w", info.PID, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// alive reports whether a process exists. One that was our child and ended has
// been waited for by start.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
