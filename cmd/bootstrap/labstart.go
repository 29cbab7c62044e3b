package main

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
	"github.com/slipway-k8s/slipway/steps"
)

const (
	// labUpWithin is how long a started lab may take to answer: it resumes clusters that it had.
	labUpWithin = 90 * time.Second
	// labDownWithin is how long a lab may take to end everything; it bounds itself a little below.
	labDownWithin = 30 * time.Second
	// labAnswerWithin is how long a lab that is up may take to say so.
	labAnswerWithin = 5 * time.Second
	// labLookEvery is how often a lab that comes or goes is looked at; its socket announces nothing.
	labLookEvery = 50 * time.Millisecond
)

// labProgram is the daemon, in the lab's folder. go build puts another file in
// its place, and leaves the old one as it is to whoever runs it.
const labProgram = "bin/lab"

// lab is the lab of one folder, up or not.
type lab struct {
	dir     string
	latency string // "fast" or "real"
	images  string // file with images and programs; empty: none
	until   int    // process with whose end it ends; 0: none
	client  *labClient

	workDir     string
	environment map[string]string
	commandLine func(target ...string) string // a command that the operator types for this lab
}

// up makes sure that the lab is up. One that is up already is used as it is.
func (l *lab) up(ctx context.Context, say flow.Say) (labInfo, error) {
	if info, err := l.answering(ctx); err == nil || !errors.Is(err, errLabDown) {
		return info, err
	}
	builder, err := newLabBuilder(l.workDir, l.environment)
	if err != nil {
		return labInfo{}, fmt.Errorf("no lab is up in %s, and none can be built: %w; one that is up can be used from any folder: "+
			"in the clone, run %s", l.dir, err, steps.ShellCommand("lab", "up", "--state-dir", filepath.Dir(l.dir)))
	}
	program := filepath.Join(l.dir, labProgram)
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		return labInfo{}, fmt.Errorf("make the lab's folder: %w", err)
	}
	unlock, err := waitForLock(ctx, filepath.Join(l.dir, "start.lock"), "starting this lab", say)
	if err != nil {
		return labInfo{}, err
	}
	defer unlock()
	if info, err := l.answering(ctx); err == nil || !errors.Is(err, errLabDown) {
		return info, err // started by whom we waited for
	}
	upstream, err := builder.upstream(ctx, say)
	if err != nil {
		return labInfo{}, err
	}
	if err := builder.daemon(ctx, program, say); err != nil {
		return labInfo{}, err
	}
	return l.start(ctx, program, upstream, say)
}

// answering asks the lab for its info, within a moment.
func (l *lab) answering(ctx context.Context) (labInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, labAnswerWithin)
	defer cancel()
	return l.client.info(ctx)
}

// start starts the daemon in a session of its own, so that neither a closed
// terminal nor Ctrl-C reaches it, and waits until it answers.
func (l *lab) start(ctx context.Context, program, upstream string, say flow.Say) (labInfo, error) {
	args := []string{"serve", "--dir", l.dir, "--latency", l.latency, "--bin", upstream}
	if l.images != "" {
		args = append(args, "--images", l.images)
	}
	if l.until != 0 {
		args = append(args, "--until-gone", strconv.Itoa(l.until))
	}
	logPath := filepath.Join(l.dir, "lab.log")
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return labInfo{}, fmt.Errorf("open the lab's log: %w", err)
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return labInfo{}, err
	}
	daemon := exec.Command(program, args...)
	daemon.Dir, daemon.Env = l.dir, labEnvironment(l.environment)
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		return labInfo{}, fmt.Errorf("start the lab: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	say("starting (process %d, log in %s)", daemon.Process.Pid, logPath)

	ctx, cancel := context.WithTimeoutCause(ctx, labUpWithin, fmt.Errorf("it did not answer within %s", labUpWithin))
	defer cancel()
	ticker := time.NewTicker(labLookEvery)
	defer ticker.Stop()
	for {
		info, err := l.answering(ctx)
		if err == nil {
			say("up: process %d, log in %s", info.PID, logPath)
			return info, nil
		}
		if !errors.Is(err, errLabDown) && ctx.Err() == nil {
			return labInfo{}, err
		}
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("it exited")
			}
			return labInfo{}, l.failed(err, logPath, begin)
		case <-ctx.Done():
			return labInfo{}, l.failed(context.Cause(ctx), logPath, begin)
		case <-ticker.C:
		}
	}
}

// failed tells why a lab did not come up, with the end of what it logged since.
func (l *lab) failed(err error, logPath string, begin int64) error {
	const lines = 15
	data, readErr := os.ReadFile(logPath)
	if readErr != nil || int64(len(data)) <= begin {
		return fmt.Errorf("start the lab: %w; it wrote nothing to %s", err, logPath)
	}
	tail := strings.Split(strings.TrimSpace(string(data[begin:])), "\n")
	tail = tail[max(0, len(tail)-lines):]
	for i := range tail {
		tail[i] = "  " + printable(tail[i])
	}
	return fmt.Errorf("start the lab: %w; the end of %s:\n%s", err, logPath, strings.Join(tail, "\n"))
}

// labEnvironment is what the daemon gets to see: where things are, and nothing
// that a password might be in.
func labEnvironment(environment map[string]string) []string {
	names := []string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "LANG", "LC_ALL", "TZ"}
	var list []string
	for _, name := range names {
		if value, ok := environment[name]; ok {
			list = append(list, name+"="+value)
		}
	}
	slices.Sort(list)
	return list
}

// down ends the lab and everything that it started, and returns when it is
// gone. It tells whether there was one.
func (l *lab) down(ctx context.Context) (bool, error) {
	info, err := l.answering(ctx)
	if errors.Is(err, errLabDown) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, labDownWithin, fmt.Errorf("it did not end within %s", labDownWithin))
	defer cancel()
	if err := l.client.do(ctx, "POST", "/v1/down", nil); err != nil && !errors.Is(err, errLabDown) {
		return true, fmt.Errorf("end the lab (process %d): %w", info.PID, err)
	}
	ticker := time.NewTicker(labLookEvery)
	defer ticker.Stop()
	for {
		_, err := l.answering(ctx)
		if errors.Is(err, errLabDown) && !alive(info.PID) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return true, fmt.Errorf("end the lab (process %d): %w", info.PID, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// alive tells whether a process exists. One that was our child and ended has
// been waited for by start.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
