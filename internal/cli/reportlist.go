package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// runList is what report --list prints as JSON.
type runList struct {
	Kind string   `json:"kind"` // "runs"
	Runs []runRow `json:"runs"`
}

// runRow is a run in the list of them.
type runRow struct {
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

// listRuns prints the runs that the state folder has, the newest last.
func listRuns(c *console, state statedir.Dir, output string) error {
	ids, err := runs.IDs(state)
	if err != nil {
		return err
	}
	rows := []runRow{}
	for _, id := range ids {
		r, err := runs.Read(state, id)
		if err != nil { // the others can be read
			rows = append(rows, runRow{Run: id, Began: beganOf(id), Targets: []string{}, Outcome: "unreadable",
				Why: text.Printable(c.hide.Text(err.Error()))})
			continue
		}
		rows = append(rows, newRunRow(hideIn(c, r)))
	}
	if output == "json" {
		return ui.PrintJSON(c.stdout, runList{"runs", rows})
	}
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, r.cells())
	}
	text.Table(c.stdout, c.width(), []string{"RUN", "BEGAN (UTC)", "TOOK", "CHANGES", "TARGETS", "OUTCOME"}, cells...)
	return nil
}

func newRunRow(r runs.Run) runRow {
	row := runRow{Run: r.ID, Began: beganOf(r.ID), Targets: r.Setup.Targets, Idle: r.Idle()}
	if len(r.Events) > 0 {
		row.Began, row.Elapsed = r.Began(), max(0, r.Ended().Sub(r.Began()))
	}
	if len(row.Targets) == 0 {
		row.Targets = []string{}
		if r.Setup.Cluster != "" {
			row.Targets = []string{targetBootstrap}
		}
	}
	end, why := outcomeOf(r)
	row.Outcome, row.Why = string(end), text.Printable(why)
	for _, l := range r.Effects {
		if l.Phase == effect.Leaves {
			row.Changes++
		}
	}
	return row
}

func (r runRow) cells() []string {
	began, took, outcome := "-", "-", r.Outcome
	if !r.Began.IsZero() {
		began = r.Began.UTC().Format(time.DateTime)
	}
	if r.Elapsed > 0 {
		took = text.Elapsed(r.Elapsed)
	}
	switch {
	case r.Idle:
		outcome += ", nothing to do"
	case r.Outcome == string(runs.Killed):
		outcome += ", or still at work"
	}
	if r.Why != "" {
		outcome += ": " + r.Why
	}
	return []string{r.Run, began, took, strconv.Itoa(r.Changes), text.Dash(strings.Join(r.Targets, " ")), outcome}
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

// outcomeOf is how a run ended, also one of a target that runs no steps.
func outcomeOf(r runs.Run) (end runs.End, why string) {
	if !runsNoSteps(r.Setup.Targets) {
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
