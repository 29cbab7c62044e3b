package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runReport writes the page of a run and those that it resumed, or lists the runs.
func runReport(ctx context.Context, c *call, o reportOptions) error {
	plan, state, err := onPaper(ctx, c)
	if err != nil {
		return err
	}
	source := report.Source{State: state, Hide: c.hide, NoSteps: runsNoSteps}
	wanted := c.word(1)
	if o.List {
		if wanted != "" || o.Out != "" {
			return usage.Errorf("report --list lists all runs, and takes neither a run nor --out")
		}
		rows, err := source.List()
		if err != nil {
			return err
		}
		return printRuns(c, rows)
	}
	if o.Out != "" {
		o.Out = settings.InFolder(c.workDir, o.Out)
	}
	made, err := source.Create(ctx, plan, wanted, o.Out)
	if err != nil {
		return err
	}
	return c.print(made, func(out io.Writer, _ int) error {
		_, err := fmt.Fprintf(out, "%s reports %s, %s; open it in a browser\n%s",
			made.File, text.Plural(made.Runs, "run", "runs"), made.Run, aboutIdleRuns(c, source, made))
		return err
	})
}

// aboutIdleRuns says which runs the report leaves out because they changed nothing, or that the one it tells is such a
// run.
func aboutIdleRuns(c *call, s report.Source, m report.Made) string {
	var words string
	if m.Idle {
		words = fmt.Sprintf("run %s changed nothing: every step was done already\n", m.Run)
		if id := s.LastChange(); id != "" {
			words += fmt.Sprintf("the last run that did something: %s\n", commandLine(c, targetReport, id))
		}
		return words
	}
	if n := len(m.IdleAfter); n > 0 {
		newest := m.IdleAfter[n-1]
		words = fmt.Sprintf("%s after it changed nothing; to read of the last of them: %s\n", text.Plural(n, "run", "runs"),
			commandLine(c, targetReport, newest))
	}
	return words
}

// reportOptions are the flags of report.
type reportOptions struct {
	List bool   // list the runs
	Out  string // where; empty: into the folder of the run
}

func newReportCommand(c *call) *cobra.Command {
	var own reportOptions
	cmd := c.command("report [RUN]", groupLook,
		"report a run, and those that it resumed, as one HTML page; default: the last run that changed something",
		func(ctx context.Context, c *call) error { return runReport(ctx, c, own) })
	cmd.Flags().StringVar(&own.Out, "out", "", "write it to `FILE`, not into the folder of the run")
	cmd.Flags().BoolVar(&own.List, "list", false,
		"list the runs: when, how long, targets, outcome, how much they changed")
	return cmd
}
