package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
)

// runRow is a run in the list of them.
type runRow struct {
	Run     string        `json:"run"`
	Began   time.Time     `json:"began,omitzero"`
	Elapsed time.Duration `json:"elapsedNs"`
	Targets []string      `json:"targets"`
	Outcome string        `json:"outcome"`
	Why     string        `json:"why,omitempty"`
	// Idle tells that every step of the run was found done, and nothing was changed.
	Idle bool `json:"idle"`
	// Changes are the calls that change something in the world; effects lists them.
	Changes int `json:"changes"`
}

// listRuns prints the runs that the state folder has, the newest last.
func listRuns(c *console, state stateFolder, output string) error {
	ids, err := runIDs(state)
	if err != nil {
		return err
	}
	rows := []runRow{}
	for _, id := range ids {
		r, err := readRun(state, id)
		if err != nil { // the others can be read
			rows = append(rows, runRow{Run: id, Began: beganOf(id), Targets: []string{}, Outcome: "unreadable",
				Why: printable(c.hide.text(err.Error()))})
			continue
		}
		rows = append(rows, newRunRow(hideIn(c, r)))
	}
	if output == "json" {
		return printJSON(c.stdout, map[string]any{"kind": "runs", "runs": rows})
	}
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, r.cells())
	}
	table(c.stdout, c.width(), []string{"RUN", "BEGAN (UTC)", "TOOK", "CHANGES", "TARGETS", "OUTCOME"}, cells...)
	return nil
}

func newRunRow(r pastRun) runRow {
	row := runRow{Run: r.id, Began: beganOf(r.id), Targets: r.setup.Targets, Idle: r.idle()}
	if len(r.events) > 0 {
		row.Began, row.Elapsed = r.began(), max(0, r.ended().Sub(r.began()))
	}
	if len(row.Targets) == 0 {
		row.Targets = []string{}
		if r.setup.Cluster != "" {
			row.Targets = []string{targetBootstrap}
		}
	}
	end, why := outcomeOf(r)
	row.Outcome, row.Why = string(end), printable(why)
	for _, l := range r.effects {
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
		took = elapsed(r.Elapsed)
	}
	switch {
	case r.Idle:
		outcome += ", nothing to do"
	case r.Outcome == string(endedUnknown):
		outcome += ", or still at work"
	}
	if r.Why != "" {
		outcome += ": " + r.Why
	}
	return []string{r.Run, began, took, strconv.Itoa(r.Changes), dash(strings.Join(r.Targets, " ")), outcome}
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
func outcomeOf(r pastRun) (end runEnd, why string) {
	if !standsAlone(r.setup.Targets) {
		return r.end()
	}
	open := map[string]bool{}
	for _, e := range r.events {
		switch e.Kind {
		case flow.StepStarted:
			open[e.Step] = true
		case flow.StepDone:
			delete(open, e.Step)
		case flow.StepFailed:
			return endedFailed, e.Step + ": " + e.Err
		case flow.StepInterrupted:
			return endedInterrupted, ""
		}
	}
	if len(open) > 0 {
		return endedUnknown, ""
	}
	return endedWell, ""
}
