package cli

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// runList is what report --list prints as JSON.
type runList struct {
	Kind string          `json:"kind"` // "runs"
	Runs []report.RunRow `json:"runs"`
}

// printRuns prints a list of runs.
func printRuns(c *call, rows []report.RunRow) error {
	return c.print(runList{"runs", rows}, func(out io.Writer, width int) error {
		var cells [][]string
		for _, r := range rows {
			cells = append(cells, runCells(r))
		}
		text.Table(out, width, []string{"RUN", "BEGAN (UTC)", "TOOK", "CHANGES", "TARGETS", "OUTCOME"}, cells...)
		return nil
	})
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
