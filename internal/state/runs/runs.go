// Package runs reads what earlier runs left in a state folder: their events, effects, configuration and durations.
package runs

import (
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
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// SetupFile is, in the folder of a run, what the run was asked to do and with what configuration, without secrets.
const SetupFile = "setup.json"

// RequestsFile is, in the folder of a run that has ended, how many requests it sent to Hetzner.
const RequestsFile = "requests.json"

// RateFile is, in the folder of a run, what is known of the rate limit of the Hetzner project while it works.
const RateFile = "ratelimit.json"

// Rate is what a run has sent to Hetzner so far, and how many requests its project has left.
type Rate struct {
	Time time.Time `json:"time"`
	ratelimit.Counts
	Limit     int `json:"limit"` // 0: no answer has said
	Remaining int `json:"remaining"`
}

// Setup is what a run begins with.
type Setup struct {
	Version     string             `json:"version"` // of the command
	Go          string             `json:"go"`
	System      string             `json:"system"` // "linux/amd64"
	Environment string             `json:"world"`
	Cluster     string             `json:"cluster"`
	Targets     []string           `json:"targets"`
	Settings    []settings.Setting `json:"settings"`
}

// Run is a run as its folder tells it.
type Run struct {
	ID      string
	Events  []flow.Event
	Effects []effect.Line
	Setup   Setup // zero: of an earlier version
	// Requests are those to Hetzner; nil: the run was killed, or is of an earlier version.
	Requests *ratelimit.Counts
}

// IDs are the runs of the folder, the oldest first.
func IDs(s statedir.Dir) ([]string, error) {
	entries, err := os.ReadDir(s.Path(statedir.RunsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries { // sorted by name, and so by time
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// find is the index of the run whose id is given, or begins like that.
func find(s statedir.Dir, ids []string, wanted string) (int, error) {
	matching := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return id != wanted && (slices.Contains(ids, wanted) || !strings.HasPrefix(id, wanted))
	})
	switch len(matching) {
	case 0:
		return 0, usage.Errorf("%s knows no run %s: its folder %s has the last %d", s, wanted, statedir.RunsFolder,
			statedir.RunsKept)
	case 1:
		return slices.Index(ids, matching[0]), nil
	}
	return 0, usage.Errorf("several runs begin with %q: %s", wanted, strings.Join(matching, ", "))
}

// Read reads what a run has left. A last line that is not whole was being written when it was killed.
func Read(s statedir.Dir, id string) (r Run, err error) {
	r.ID = id
	path := func(name string) string { return s.Path(filepath.Join(statedir.RunsFolder, id, name)) }
	if r.Events, err = readEvents(path(statedir.EventsFile)); err != nil {
		return r, err
	}
	if r.Effects, err = readEffects(path(statedir.EffectsFile)); err != nil {
		return r, err
	}
	if err := readOptional(path(SetupFile), &r.Setup); err != nil {
		return r, fmt.Errorf("read what run %s began with: %w", id, err)
	}
	if err := readOptional(path(RequestsFile), &r.Requests); err != nil {
		return r, fmt.Errorf("read how many requests run %s sent to Hetzner: %w", id, err)
	}
	return r, nil
}

// readOptional reads JSON from a file that not every run has.
func readOptional(path string, into any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	return err
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
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var e flow.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("read %s: line %d: %w", path, len(events)+1, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// Story is the run that is meant, and before it those that it resumed: back to the last that ended without an error.
// Without a name the last that did something is meant. Runs that are not of steps, and such as ended before their first
// step, are no part of it. alone reports whether targets are not of steps.
func Story(s statedir.Dir, wanted string, alone func(targets []string) bool) ([]Run, error) {
	ids, err := IDs(s)
	if err != nil {
		return nil, err
	}
	last := len(ids) - 1
	if wanted != "" {
		if last, err = find(s, ids, wanted); err != nil {
			return nil, err
		}
	}
	var story []Run
	newestIdle := ""
	gone := "" // the run that took the cluster away, where the story ends at it
	for i := last; i >= 0; i-- {
		r, err := Read(s, ids[i])
		if err != nil {
			return nil, err
		}
		switch {
		case i == last && wanted != "" && !r.ofSteps(alone):
			return nil, usage.Errorf("run %s ran no steps, so there is nothing to report", r.ID)
		case r.tookAway(): // what was before it is another cluster's story
			gone, i = r.ID, 0
		case !r.ofSteps(alone):
		case wanted == "" && len(story) == 0 && r.Idle(): // the story is that of the last run that did something
			newestIdle = cmp.Or(newestIdle, r.ID)
		case len(story) > 0 && r.finished():
			i = 0
		default:
			story = append(story, r)
		}
	}
	if len(story) == 0 && newestIdle != "" { // of those that did something no folder is left
		return Story(s, newestIdle, alone)
	}
	switch {
	case len(story) == 0 && gone != "":
		return nil, fmt.Errorf("no run in %s has reached its steps since run %s destroyed the cluster; to read of that, "+
			"name one of its runs in %s: report RUN",
			s, gone, s.Path(statedir.RunsFolder))
	case len(story) == 0:
		return nil, fmt.Errorf("no run in %s has reached its steps yet", s)
	}
	slices.Reverse(story)
	return story, nil
}

// tookAway reports whether the run was a destroy that deleted something, and not one that a person declined.
func (r Run) tookAway() bool {
	return slices.Contains(r.Setup.Targets, "destroy") && slices.ContainsFunc(r.Effects, func(l effect.Line) bool {
		return l.System == effect.Hetzner && l.Verb == "delete" || l.System == effect.File && l.Verb == statedir.VerbRetire
	})
}

// ofSteps reports whether the run was one of steps, or failed before it reached them. One that ended in order before
// its first step, as where a person said no, was none.
func (r Run) ofSteps(alone func(targets []string) bool) bool {
	if alone(r.Setup.Targets) {
		return false
	}
	open := map[string]bool{}
	for _, e := range r.Events {
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

// finished reports whether the run ended without an error.
func (r Run) finished() bool {
	e, ok := r.lastFinished()
	return ok && e.Err == ""
}

// lastFinished is the end of the run's graph: of the last one, where it runs several. There is none where that has not
// ended.
func (r Run) lastFinished() (flow.Event, bool) {
	for _, e := range slices.Backward(r.Events) {
		switch e.Kind {
		case flow.RunFinished:
			return e, true
		case flow.RunStarted:
			return flow.Event{}, false
		}
	}
	return flow.Event{}, false
}

// Last finds the last event of a kind.
func (r Run) Last(kind flow.EventKind) (flow.Event, bool) {
	for _, e := range slices.Backward(r.Events) {
		if e.Kind == kind {
			return e, true
		}
	}
	return flow.Event{}, false
}

// Began and ended are when it was first and last heard of.
func (r Run) Began() time.Time { return r.Events[0].Time }

// Ended is the time of the last event or effect.
func (r Run) Ended() time.Time {
	end := r.Events[len(r.Events)-1].Time
	if n := len(r.Effects); n > 0 && r.Effects[n-1].Time.After(end) {
		end = r.Effects[n-1].Time
	}
	return end
}

// End is how a run ended.
type End string

const (
	Finished    End = "finished"
	Failed      End = "failed"
	Interrupted End = "interrupted"
	Killed      End = "killed" // or it is still at work
)

// Outcome is how the run ended, and why.
func (r Run) Outcome() (end End, why string) {
	for _, l := range slices.Backward(r.Effects) {
		if l.Phase == effect.Killed {
			return Killed, "it ended itself, as it was asked to for a test: " + l.Error
		}
	}
	interrupted := slices.ContainsFunc(r.Events, func(e flow.Event) bool { return e.Kind == flow.StepInterrupted })
	e, ok := r.lastFinished()
	switch {
	case ok && e.Err == "":
		return Finished, ""
	case ok && strings.Contains(e.Err, flow.ErrInterrupted.Error()):
		return Interrupted, ""
	case ok: // also one whose own deadline has interrupted its steps
		return Failed, e.Err
	}
	if e, failed := r.Last(flow.StepFailed); failed { // before the graph, where no run begins
		return Failed, e.Step + ": " + e.Err
	}
	if interrupted {
		return Interrupted, ""
	}
	return Killed, ""
}

// Idle reports whether the run ended without an error and did nothing: every step's result was reused.
func (r Run) Idle() bool {
	if !r.finished() || len(r.Effects) > 0 {
		return false
	}
	started := slices.IndexFunc(r.Events, func(e flow.Event) bool { return e.Kind == flow.RunStarted })
	return started >= 0 && !slices.ContainsFunc(r.Events[started:],
		func(e flow.Event) bool { return e.Kind == flow.StepDone })
}

// IdleAfter are the runs after one that did nothing.
func IdleAfter(s statedir.Dir, id string) (idle []string, err error) {
	ids, err := IDs(s)
	if err != nil {
		return nil, err
	}
	for _, later := range ids[slices.Index(ids, id)+1:] {
		r, err := Read(s, later)
		if err != nil {
			return nil, err
		}
		if r.Idle() {
			idle = append(idle, later)
		}
	}
	return idle, nil
}

// NoteEvent is the kind of an event that the command itself adds: something
// that a person should know.
const NoteEvent flow.EventKind = "note"
