package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
)

// setupFile is, in the folder of a run, what the run was asked to do and with what configuration, without secrets.
const setupFile = "setup.json"

// setup is what a run begins with.
type setup struct {
	Version  string    `json:"version"` // of the command
	Go       string    `json:"go"`
	System   string    `json:"system"` // "linux/amd64"
	World    string    `json:"world"`
	Cluster  string    `json:"cluster"`
	Targets  []string  `json:"targets"`
	Settings []setting `json:"settings"`
}

// pastRun is a run as its folder tells it.
type pastRun struct {
	id      string
	events  []flow.Event
	effects []effect.Line
	setup   setup // zero: of an earlier version
}

// runIDs are the runs of the folder, the oldest first.
func runIDs(s stateFolder) ([]string, error) {
	entries, err := os.ReadDir(s.path(runsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries { // sorted by name, and so by time
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// readRun reads what a run has left. A last line that is not whole was being written when it was killed.
func readRun(s stateFolder, id string) (r pastRun, err error) {
	r.id = id
	path := func(name string) string { return s.path(filepath.Join(runsFolder, id, name)) }
	if r.events, err = readEvents(path(eventsFile)); err != nil {
		return r, err
	}
	if r.effects, err = readEffects(path(effectsFile)); err != nil {
		return r, err
	}
	data, err := os.ReadFile(path(setupFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r.setup)
	}
	if err != nil {
		return r, fmt.Errorf("read what run %s began with: %w", id, err)
	}
	return r, nil
}

func readEvents(path string) ([]flow.Event, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var events []flow.Event
	lines := bufio.NewReader(bytes.NewReader(data))
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return events, nil
		}
		var e flow.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read %s: line %d: %w", path, n, err)
		}
		events = append(events, e)
	}
}

// runStory is the run that is meant, and before it those that it went on from: back to the last that came to a good end. Without
// a name the last that did something is meant. Runs that are not of steps, and such as ended before their first step, are no part of it. alone tells
// whether targets are not of steps.
func runStory(s stateFolder, wanted string, alone func(targets []string) bool) ([]pastRun, error) {
	ids, err := runIDs(s)
	if err != nil {
		return nil, err
	}
	last := len(ids) - 1
	if wanted != "" {
		matching := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			return id != wanted && (slices.Contains(ids, wanted) || !strings.HasPrefix(id, wanted))
		})
		switch len(matching) {
		case 0:
			return nil, usagef("%s knows no run %s: its folder %s has the last %d", s, wanted, runsFolder, runsKept)
		case 1:
			last = slices.Index(ids, matching[0])
		default:
			return nil, usagef("several runs begin with %q: %s", wanted, strings.Join(matching, ", "))
		}
	}
	var story []pastRun
	newestIdle := ""
	gone := "" // the run that took the cluster away, where the story ends at it
	for i := last; i >= 0; i-- {
		r, err := readRun(s, ids[i])
		if err != nil {
			return nil, err
		}
		switch {
		case i == last && wanted != "" && !r.ofSteps(alone):
			return nil, usagef("run %s ran no steps, so there is nothing to report", r.id)
		case r.tookAway(): // what was before it is another cluster's story
			gone, i = r.id, 0
		case !r.ofSteps(alone):
		case wanted == "" && len(story) == 0 && r.idle(): // the story is that of the last run that did something
			newestIdle = cmp.Or(newestIdle, r.id)
		case len(story) > 0 && r.finished():
			i = 0
		default:
			story = append(story, r)
		}
	}
	if len(story) == 0 && newestIdle != "" { // of those that did something no folder is left
		return runStory(s, newestIdle, alone)
	}
	switch {
	case len(story) == 0 && gone != "":
		return nil, fmt.Errorf("no run in %s has come to its steps since run %s destroyed the cluster; to read of that, name one of its runs in %s: report RUN",
			s, gone, s.path(runsFolder))
	case len(story) == 0:
		return nil, fmt.Errorf("no run in %s has come to its steps yet", s)
	}
	slices.Reverse(story)
	return story, nil
}

// tookAway tells whether the run was a destroy that deleted something, and not one that a person declined.
func (r pastRun) tookAway() bool {
	return slices.Contains(r.setup.Targets, "destroy") && slices.ContainsFunc(r.effects, func(l effect.Line) bool {
		return l.World == effect.Hetzner && l.Verb == "delete" || l.World == effect.File && l.Verb == verbRetire
	})
}

// ofSteps tells whether the run was one of steps, or ended badly before it came to them. One that ended in order before its
// first step, as where a person said no, was none.
func (r pastRun) ofSteps(alone func(targets []string) bool) bool {
	if alone(r.setup.Targets) {
		return false
	}
	open := map[string]bool{}
	for _, e := range r.events {
		switch e.Kind {
		case flow.RunStarted, flow.StepFailed, flow.StepInterrupted:
			return true
		case flow.StepStarted:
			open[e.Step] = true
		case flow.StepDone:
			delete(open, e.Step)
		}
	}
	return len(open) > 0
}

// finished tells whether the run came to a good end.
func (r pastRun) finished() bool {
	e, ok := r.last(flow.RunFinished)
	return ok && e.Err == ""
}

// last finds the last event of a kind.
func (r pastRun) last(kind flow.EventKind) (flow.Event, bool) {
	for _, e := range slices.Backward(r.events) {
		if e.Kind == kind {
			return e, true
		}
	}
	return flow.Event{}, false
}

// began and ended are when it was first and last heard of.
func (r pastRun) began() time.Time { return r.events[0].Time }

func (r pastRun) ended() time.Time {
	end := r.events[len(r.events)-1].Time
	if n := len(r.effects); n > 0 && r.effects[n-1].Time.After(end) {
		end = r.effects[n-1].Time
	}
	return end
}

// runEnd is how a run ended.
type runEnd string

const (
	endedWell        runEnd = "finished"
	endedFailed      runEnd = "failed"
	endedInterrupted runEnd = "interrupted"
	endedUnknown     runEnd = "killed" // or it is still at work
)

// end is how the run ended, and why.
func (r pastRun) end() (end runEnd, why string) {
	for _, l := range slices.Backward(r.effects) {
		if l.Phase == effect.Killed {
			return endedUnknown, "it ended itself, as it was asked to for a test: " + l.Error
		}
	}
	interrupted := slices.ContainsFunc(r.events, func(e flow.Event) bool { return e.Kind == flow.StepInterrupted })
	e, ok := r.last(flow.RunFinished)
	switch {
	case ok && e.Err == "":
		return endedWell, ""
	case ok && strings.Contains(e.Err, flow.ErrInterrupted.Error()):
		return endedInterrupted, ""
	case ok: // also one whose own deadline has interrupted its steps
		return endedFailed, e.Err
	}
	if e, failed := r.last(flow.StepFailed); failed { // before the graph, where no run begins
		return endedFailed, e.Step + ": " + e.Err
	}
	if interrupted {
		return endedInterrupted, ""
	}
	return endedUnknown, ""
}

// idle tells whether the run came to its end and did nothing: every step's result was reused.
func (r pastRun) idle() bool {
	if !r.finished() || len(r.effects) > 0 {
		return false
	}
	started := slices.IndexFunc(r.events, func(e flow.Event) bool { return e.Kind == flow.RunStarted })
	return started >= 0 && !slices.ContainsFunc(r.events[started:],
		func(e flow.Event) bool { return e.Kind == flow.StepDone })
}

// idleAfter are the runs after one that did nothing.
func idleAfter(s stateFolder, id string) (idle []string, err error) {
	ids, err := runIDs(s)
	if err != nil {
		return nil, err
	}
	for _, later := range ids[slices.Index(ids, id)+1:] {
		r, err := readRun(s, later)
		if err != nil {
			return nil, err
		}
		if r.idle() {
			idle = append(idle, later)
		}
	}
	return idle, nil
}

// noteEvent is the kind of an event that the command itself adds: something
// that a person should know.
const noteEvent flow.EventKind = "note"
