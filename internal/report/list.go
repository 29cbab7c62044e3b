package report

import (
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// RunRow is a run in the list of them.
type RunRow struct {
	Run     string        `json:"run"`
	Began   time.Time     `json:"began,omitzero"`
	Elapsed time.Duration `json:"elapsedNs"`
	Targets []string      `json:"targets"`
	Outcome string        `json:"outcome"`
	Why     string        `json:"why,omitempty"`
	// Idle reports that every step of the run was found done, and nothing was changed.
	Idle bool `json:"idle"`
	// Changes are the calls that change something outside of the process; effects lists them.
	Changes int `json:"changes"`
}

// List lists the runs that the state folder has, the newest last.
func (s Source) List() ([]RunRow, error) {
	ids, err := runs.IDs(s.State)
	if err != nil {
		return nil, err
	}
	rows := []RunRow{}
	for _, id := range ids {
		r, err := runs.Read(s.State, id)
		if err != nil { // the others can be read
			rows = append(rows, RunRow{Run: id, Began: beganOf(id), Targets: []string{}, Outcome: "unreadable",
				Why: text.Printable(s.Hide.Text(err.Error()))})
			continue
		}
		rows = append(rows, s.row(hidden(s.Hide, r)))
	}
	return rows, nil
}

func (s Source) row(r runs.Run) RunRow {
	row := RunRow{Run: r.ID, Began: beganOf(r.ID), Targets: r.Setup.Targets, Idle: r.Idle()}
	if len(r.Events) > 0 {
		row.Began, row.Elapsed = r.Began(), max(0, r.Ended().Sub(r.Began()))
	}
	if len(row.Targets) == 0 {
		row.Targets = []string{}
		if r.Setup.Cluster != "" {
			row.Targets = []string{session.TargetBootstrap}
		}
	}
	end, why := s.outcome(r)
	row.Outcome, row.Why = string(end), text.Printable(why)
	for _, l := range r.Effects {
		if l.Phase == effect.Leaves {
			row.Changes++
		}
	}
	return row
}

// beganOf is the time in a run's id; zero: there is none.
func beganOf(id string) time.Time {
	stamp, _, _ := strings.Cut(id, "-")
	began, err := time.Parse("20060102T150405.000Z", stamp)
	if err != nil {
		return time.Time{}
	}
	return began
}

// outcome is how a run ended, also one of a target that runs no steps.
func (s Source) outcome(r runs.Run) (end runs.End, why string) {
	if !s.NoSteps(r.Setup.Targets) {
		return r.Outcome()
	}
	open := map[string]bool{}
	for _, e := range r.Events {
		switch e.Kind {
		case flow.StepStarted:
			open[e.Step] = true
		case flow.StepDone:
			delete(open, e.Step)
		case flow.StepFailed:
			return runs.Failed, e.Step + ": " + e.Err
		case flow.StepInterrupted:
			return runs.Interrupted, ""
		}
	}
	if len(open) > 0 {
		return runs.Killed, ""
	}
	return runs.Finished, ""
}
