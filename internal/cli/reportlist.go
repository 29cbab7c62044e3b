package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// runList is what report --list prints as JSON.
type runList struct {
	Kind string          `json:"kind"` // "runs"
	Runs []report.RunRow `json:"runs"`
}

// printRuns prints a list of runs.
func printRuns(c *console, rows []report.RunRow, output string) error {
	if output == "json" {
		return ui.PrintJSON(c.stdout, runList{"runs", rows})
	}
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, runCells(r))
	}
	text.Table(c.stdout, c.width(), []string{"RUN", "BEGAN (UTC)", "TOOK", "CHANGES", "TARGETS", "OUTCOME"}, cells...)
	return nil
}

func runCells(r report.RunRow) []string {
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
