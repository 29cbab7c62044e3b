package serve

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// State is what a run is doing, or how it ended.
type State string

// The states of a run.
const (
	Starting    State = "starting" // its process has begun, and the run not yet
	Running     State = "running"
	Finished    State = "finished"
	Failed      State = "failed"
	Interrupted State = "interrupted" // its process ended before its end; it can be resumed
	Cancelled   State = "cancelled"   // interrupted by a person from here
)

// Ended reports whether nothing more comes of a run in this state.
func (s State) Ended() bool { return s != Starting && s != Running }

// Run is a run of a cluster, started from here or elsewhere.
type Run struct {
	ID          string     `json:"id"`
	Run         string     `json:"run,omitempty"` // the id in the state folder; absent: the run has not begun
	Cluster     string     `json:"cluster"`
	Environment string     `json:"world"` // "hetzner" or "lab"
	Targets     []string   `json:"targets"`
	State       State      `json:"state"`
	Started     time.Time  `json:"started"`
	Ended       *time.Time `json:"ended,omitempty"`
	By          string     `json:"by,omitempty"`        // absent: it was started elsewhere
	Resumes     string     `json:"resumes,omitempty"`   // the id of the run that it resumes
	ResumedBy   string     `json:"resumedBy,omitempty"` // the id of the newest run that resumes it
	Message     string     `json:"message,omitempty"`   // why it failed
	Steps       Counts     `json:"steps"`
	Resumable   bool       `json:"resumable"`
	Cancel      bool       `json:"cancellable"`
	Cancelled   bool       `json:"cancelRequested"`
}

// Counts are the steps of a run by what became of them.
type Counts struct {
	Wanted  int `json:"wanted"` // 0: not known yet
	Done    int `json:"done"`   // that ran or were reused
	AtWork  int `json:"atWork"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

// is reports whether an id is the run's.
func (r Run) is(id string) bool { return id != "" && (r.ID == id || r.Run == id) }

// timeOfID is how ids of runs begin.
const timeOfID = "20060102T150405.000Z"

// took takes the id of a run in the state folder apart.
func took(id string) (began time.Time, pid int, ok bool) {
	at, number, _ := strings.Cut(id, "-")
	began, err := time.Parse(timeOfID, at)
	if err != nil {
		return began, 0, false
	}
	pid, err = strconv.Atoi(number)
	return began, pid, err == nil && pid > 0
}

// seen is what was read of a run, for as long as its files have the same sizes.
type seen struct {
	run   runs.Run
	sizes [3]int64
}

// read reads a run of the state folder.
func (c *cluster) read(id string) (seen, error) {
	var sizes [3]int64
	for i, name := range []string{statedir.EventsFile, statedir.EffectsFile, runs.SetupFile} {
		if info, err := os.Stat(c.State.Path(filepath.Join(statedir.RunsFolder, id, name))); err == nil {
			sizes[i] = info.Size()
		}
	}
	if s, known := c.seen[id]; known && s.sizes == sizes {
		return s, nil
	}
	r, err := runs.Read(c.State, id)
	if err != nil {
		return seen{}, err
	}
	s := seen{run: r, sizes: sizes}
	c.seen[id] = s
	return s, nil
}

// runOf finds the run that a record's process made in the state folder; empty: none yet.
func (c *cluster) runOf(r record) string {
	ids, _ := runs.IDs(c.State)
	for _, id := range ids {
		if began, pid, ok := took(id); ok && pid == r.PID && r.PID > 0 && !began.Before(r.Started.Add(-time.Second)) {
			return id
		}
	}
	return ""
}

// link finds out which run of the state folder is a record's.
func (c *cluster) link(r record) record {
	if r.Run != "" {
		return r
	}
	if r.Run = c.runOf(r); r.Run != "" {
		if err := c.change(r.ID, func(old *record) { old.Run = r.Run }); err != nil {
			c.Log.Warn("a record of a run is not saved", "cluster", c.Name, "run", r.ID, "error", err)
		}
	}
	return r
}

// stateOf is what the run of a record is doing, or how it ended.
func (c *cluster) stateOf(r record) State {
	if c.works(r) {
		if r.Run == "" {
			return Starting
		}
		return Running
	}
	state := Interrupted
	switch s, err := c.read(r.Run); {
	case r.Exit != nil && *r.Exit == 0:
		return Finished
	case r.Exit != nil && *r.Exit == interruptedCode:
	case r.Exit != nil:
		return Failed
	case r.Run != "" && err == nil && len(s.run.Events) > 0:
		state = endOf(s.run)
	case r.PID == 0 && r.Message != "": // it could not be started
		return Failed
	}
	if state == Interrupted && !r.Cancelled.IsZero() {
		return Cancelled
	}
	return state
}

// interruptedCode is the command's exit code for an interrupted run.
const interruptedCode = 130

// endOf is how a run ended whose exit code is not known.
func endOf(r runs.Run) State {
	switch end, _ := r.Outcome(); end {
	case runs.Finished:
		return Finished
	case runs.Failed:
		return Failed
	}
	return Interrupted
}

// view is the run of a record, as it is shown.
func (c *cluster) view(r record) Run {
	r = c.link(r)
	state := c.stateOf(r)
	v := Run{ID: r.ID, Run: r.Run, Cluster: c.Name, Environment: r.Environment, Targets: slices.Clone(r.Targets), State: state,
		Started: r.Started, By: r.By, Resumes: r.Resumes, Message: r.Message, Cancel: !state.Ended(),
		Cancelled: !r.Cancelled.IsZero()}
	if state.Ended() {
		ended := r.Ended
		v.Ended = &ended
	}
	if s, err := c.read(r.Run); r.Run != "" && err == nil {
		v.Steps = count(s.run.Events)
		if state == Failed && v.Message == "" {
			_, v.Message = s.run.Outcome()
		}
	}
	switch {
	case state == Finished:
		v.Message = "" // what it noted is among its events
	case state == Interrupted && r.Signal != "":
		v.Message = strings.TrimSpace("its process was ended by the signal: " + r.Signal + "\n" + r.Message)
	case state == Interrupted && r.PID == 0:
		v.Message = "serve was killed while it started the run"
	case state == Interrupted && r.Exit == nil:
		v.Message = strings.TrimSpace("its process ended while serve did not run\n" + r.Message)
	}
	v.Message = c.Hide.Text(v.Message)
	return v
}

// elsewhere is a run of the state folder that was not started here; ok is false for one that has not said anything.
func (c *cluster) elsewhere(id string) (v Run, ok bool) {
	s, err := c.read(id)
	began, pid, is := took(id)
	if err != nil || !is || len(s.run.Events) == 0 {
		return v, false
	}
	v = Run{ID: id, Run: id, Cluster: c.Name, Environment: cmp.Or(s.run.Setup.Environment, c.Environment), Started: began,
		Targets: slices.Clone(s.run.Setup.Targets), Steps: count(s.run.Events)}
	if len(v.Targets) == 0 {
		v.Targets = []string{"bootstrap"}
	}
	// A run has its process for longer than its last event: until the summary is printed.
	if processBefore(pid, began) {
		v.State = Running
		return v, true
	}
	v.State = endOf(s.run)
	ended := s.run.Ended()
	v.Ended = &ended
	_, v.Message = s.run.Outcome()
	v.Message = c.Hide.Text(v.Message)
	return v, true
}

// list has all runs, the newest first.
func (c *cluster) list() ([]Run, error) {
	ids, err := runs.IDs(c.State)
	if err != nil {
		return nil, err
	}
	all := []Run{}
	known := map[string]bool{}
	for i := range c.records { // by index: to link a record changes it
		v := c.view(c.records[i])
		known[v.Run] = true
		all = append(all, v)
	}
	for _, id := range ids {
		if known[id] {
			continue
		}
		if v, ok := c.elsewhere(id); ok {
			all = append(all, v)
		}
	}
	for _, later := range all { // records are in the order of time
		i := slices.IndexFunc(all, func(r Run) bool { return later.Resumes != "" && r.ID == later.Resumes })
		if i >= 0 {
			all[i].ResumedBy = later.ID
		}
	}
	slices.SortStableFunc(all, func(a, b Run) int { return b.Started.Compare(a.Started) })
	if len(all) > 0 && all[0].State.Ended() && all[0].State != Finished && c.CheckTargets(all[0].Targets) == nil {
		// What was rehearsed is not continued at Hetzner, where it would cost money.
		all[0].Resumable = all[0].Environment == c.Environment
	}
	for id := range c.seen { // of runs that the state folder does not keep any more
		if !slices.Contains(ids, id) {
			delete(c.seen, id)
		}
	}
	return all, nil
}

// Runs are all runs that are known, the newest first.
func (c *cluster) Runs() ([]Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list()
}

// Find finds a run by its id, or by that in the state folder.
func (c *cluster) Find(id string) (Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(id)
}

func (c *cluster) find(id string) (Run, error) {
	all, err := c.list()
	if err != nil {
		return Run{}, err
	}
	i := slices.IndexFunc(all, func(r Run) bool { return r.is(id) })
	if i < 0 {
		return Run{}, refuse(http.StatusNotFound, "cluster %s has no run %s", c.Name, id)
	}
	return all[i], nil
}

// AtWork is the id of a run that works; empty: none does.
func (c *cluster) AtWork() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.atWork()
}

func (c *cluster) atWork() (string, error) {
	all, err := c.list()
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if !r.State.Ended() {
			return r.ID, nil
		}
	}
	return "", nil
}

// Events is the path of the file with the events of a run; ok is false where the run has none yet.
func (c *cluster) Events(r Run) (path string, ok bool) {
	if r.Run == "" {
		return "", false
	}
	path = c.State.Path(filepath.Join(statedir.RunsFolder, r.Run, statedir.EventsFile))
	_, err := os.Stat(path)
	return path, !errors.Is(err, fs.ErrNotExist)
}

// count counts the steps of a run.
func count(events []flow.Event) (n Counts) {
	states := map[string]flow.EventKind{}
	for _, e := range events {
		if e.Kind == flow.RunStarted {
			n.Wanted = leadingNumber(e.Message)
			clear(states) // what comes before the graph is no step of it
		}
		if e.Step != "" && e.Kind != flow.StepProgress {
			states[e.Step] = e.Kind
		}
	}
	for _, kind := range states {
		switch kind {
		case flow.StepDone, flow.StepReused:
			n.Done++
		case flow.StepStarted, flow.StepVerifying:
			n.AtWork++
		case flow.StepFailed:
			n.Failed++
		case flow.StepSkipped, flow.StepInterrupted:
			n.Skipped++
		}
	}
	return n
}

// leadingNumber is the number that a text begins with; 0: it begins with none.
func leadingNumber(text string) int {
	first, _, _ := strings.Cut(text, " ")
	n, _ := strconv.Atoi(first)
	return n
}
