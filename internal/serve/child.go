package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/child"
)

// CheckTargets refuses what is no target of a run.
func (c *cluster) CheckTargets(targets []string) error {
	if len(targets) == 0 {
		return refuse(http.StatusBadRequest, "no target is named: name one or more of %s", strings.Join(c.Targets, ", "))
	}
	for i, t := range targets {
		if !slices.Contains(c.Targets, t) {
			return refuse(http.StatusBadRequest, "%q is no target that can be run from here: name one or more of %s", t,
				strings.Join(c.Targets, ", "))
		}
		if slices.Contains(targets[:i], t) {
			return refuse(http.StatusBadRequest, "target %q is named twice", t)
		}
	}
	return nil
}

// Start starts a run of targets.
func (c *cluster) Start(targets []string, by string) (Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(record{Targets: targets, By: by})
}

// start starts the process of a record that is not filled in yet. The record is written before and after, so that a
// process that serve could not write down is known to be missing.
func (c *cluster) start(r record) (Run, error) {
	if err := c.CheckTargets(r.Targets); err != nil {
		return Run{}, err
	}
	if at, err := c.atWork(); err != nil {
		return Run{}, err
	} else if at != "" {
		return Run{}, refuse(http.StatusConflict, "run %s is at work on cluster %s: wait for its end, or cancel it", at,
			c.Name)
	}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	r.Started, r.Host, r.Environment = time.Now().UTC().Truncate(time.Millisecond), c.host, c.Environment
	r.ID = r.Started.Format(timeOfID) + "-" + hex.EncodeToString(random)
	if err := c.store.Save(r); err != nil {
		return Run{}, err
	}
	c.records = append(c.records, r)
	cmd, err := c.launch(&r)
	if err != nil {
		r.Ended, r.Message = time.Now(), c.Hide.Text("the process could not be started: "+err.Error())
	}
	if saved := c.change(r.ID, func(old *record) { *old = r }); saved != nil {
		c.Log.Warn("after a restart this run is not found again by its process", "cluster", c.Name, "run", r.ID,
			"error", saved)
	}
	if err != nil {
		return Run{}, fmt.Errorf("start run %s: %w", r.ID, err)
	}
	c.own[r.ID] = true
	c.working.Go(func() { c.followChild(r.ID, cmd) })
	if c.records, err = c.store.Prune(c.records); err != nil {
		c.Log.Warn("old records of runs are not removed", "cluster", c.Name, "error", err)
	}
	c.Log.Info("run started", "cluster", c.Name, "run", r.ID, "targets", strings.Join(r.Targets, " "), "by", r.By,
		"resumes", r.Resumes)
	return c.view(r), nil
}

// launch starts the process: in a group of its own, so that what ends serve does not end it, and with files for its
// streams, so that it can go on when serve is gone. Its events are in the state folder. Its environment has the secrets
// that serve began with: it is the same command, and needs them for the same.
func (c *cluster) launch(r *record) (*exec.Cmd, error) {
	stderr, err := os.OpenFile(c.store.Errors(r.ID), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	words := slices.Concat(r.Targets, []string{"--output", "json"}, c.Arguments)
	cmd := child.Command(context.Background(), c.Executable, words...)
	cmd.Dir, cmd.Env, cmd.Stderr = c.Dir, c.Env, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r.PID = cmd.Process.Pid
	r.Process, _ = processStarted(r.PID)
	return cmd, nil
}

// followChild waits for the end of a process that serve has started.
func (c *cluster) followChild(id string, cmd *exec.Cmd) {
	_ = cmd.Wait() // what came of it is in the state
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.own, id)
	c.ended(id, func(r *record) {
		status, is := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if is && status.Signaled() {
			r.Signal = status.Signal().String()
			return
		}
		code := cmd.ProcessState.ExitCode()
		r.Exit = &code
	})
}

// lookAgain is how often it is looked whether a process that is no child still works.
const lookAgain = 300 * time.Millisecond

// followStranger waits for the end of a process that an earlier serve has started.
func (c *cluster) followStranger(id string) {
	for {
		select {
		case <-c.ending:
			return
		case <-time.After(lookAgain):
		}
		c.mu.Lock()
		r, ok := c.record(id)
		if !ok || !c.works(r) {
			c.ended(id, func(*record) {})
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// ended writes down the end of a run.
func (c *cluster) ended(id string, how func(*record)) {
	err := c.change(id, func(r *record) {
		c.noticeEnd(r)
		how(r)
		c.Log.Info("run ended", "cluster", c.Name, "run", r.ID, "state", c.stateOf(*r))
	})
	if err != nil {
		c.Log.Warn("the end of a run is not written down; after a restart it is found out again", "cluster", c.Name,
			"run", id, "error", err)
	}
}

// Cancel interrupts a run as Ctrl-C does: what is done is kept, and the run can be resumed. Where it is forced, a run
// that is being cancelled already is ended at once, as by a second Ctrl-C.
func (c *cluster) Cancel(id, by string, force bool) (Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.record(id)
	if !ok {
		if _, err := c.find(id); err != nil {
			return Run{}, err
		}
		return Run{}, refuse(http.StatusConflict, "run %s was not started here: end it where it was started", id)
	}
	if !c.works(r) {
		return Run{}, refuse(http.StatusConflict, "run %s has ended", id)
	}
	again := !r.Cancelled.IsZero()
	if again && !force {
		return c.view(r), nil
	}
	if !again {
		// First: should serve be killed now, the run must not be resumed against what a person wants.
		err := c.change(r.ID, func(old *record) { old.CancelledBy, old.Cancelled = by, time.Now().UTC() })
		if err != nil {
			return Run{}, err
		}
	}
	if err := syscall.Kill(-r.PID, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return Run{}, fmt.Errorf("interrupt process %d of run %s: %w", r.PID, id, err)
	}
	c.Log.Info("run cancelled", "cluster", c.Name, "run", r.ID, "by", by, "force", again)
	r, _ = c.record(id)
	return c.view(r), nil
}

// Resume starts a run of the targets of an earlier one, which continues where that stopped.
func (c *cluster) Resume(id, by string) (Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resume(id, by, 0)
}

func (c *cluster) resume(id, by string, automatic int) (Run, error) {
	run, err := c.find(id)
	if err != nil {
		return Run{}, err
	}
	if !run.Resumable {
		return Run{}, refuse(http.StatusConflict, "run %s cannot be resumed: only the last run of a cluster can, where it "+
			"has ended without reaching its targets, is a run of steps, and was one of where serve works (%s)", id,
			c.Environment)
	}
	return c.start(record{Targets: run.Targets, By: by, Resumes: run.ID, Automatic: automatic})
}

// resumedInARow is how often a run that is interrupted again and again is resumed without a person.
const resumedInARow = 5

// byItself is who starts the runs that serve resumes at its start.
const byItself = "serve"

// ResumeInterrupted resumes the last run, where it was interrupted and not cancelled.
func (c *cluster) ResumeInterrupted() (Run, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.list()
	if err != nil || len(all) == 0 {
		return Run{}, false, err
	}
	last := all[0]
	r, own := c.record(last.ID)
	if !own || last.State != Interrupted || !last.Resumable {
		return Run{}, false, nil
	}
	if r.Automatic >= resumedInARow {
		c.Log.Warn("the run was interrupted after each of several automatic resumes: resume it by hand",
			"cluster", c.Name, "run", r.ID, "resumes", r.Automatic)
		return Run{}, false, nil
	}
	run, err := c.resume(last.ID, byItself, r.Automatic+1)
	return run, err == nil, err
}

// interruptAll interrupts the runs of all clusters at once, and waits for their end or for the time.
func interruptAll(clusters []*cluster, within time.Duration) {
	var ending sync.WaitGroup
	for _, c := range clusters {
		ending.Go(func() { c.Interrupt(within) })
	}
	ending.Wait()
}

// Interrupt interrupts the runs that serve has started, and waits for their end or for the time.
func (c *cluster) Interrupt(within time.Duration) {
	deadline := time.Now().Add(within)
	for asked := false; ; asked = true {
		c.mu.Lock()
		left := 0
		for _, r := range c.records {
			if !c.works(r) {
				continue
			}
			left++
			if !asked {
				_ = syscall.Kill(-r.PID, syscall.SIGINT)
			}
		}
		c.mu.Unlock()
		if left == 0 || time.Now().After(deadline) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// record finds the record of a run by its id, or by that in the state folder.
func (c *cluster) record(id string) (record, bool) {
	for _, r := range slices.Backward(c.records) {
		if r.ID == id || r.Run != "" && r.Run == id {
			return r, true
		}
	}
	return record{}, false
}
