package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runPlan prints what a run with these targets would do. It changes nothing.
func runPlan(ctx context.Context, c *call) error {
	k, err := c.load()
	if err != nil {
		return err
	}
	if c.word(0) == "plan" { // with -n the targets are the run's own
		k.Targets = c.Targets[1:]
	}
	if slices.Contains(k.Targets, targetApply) {
		asked, cancel := context.WithTimeout(ctx, examinesWithin)
		defer cancel()
		x, lines, err := operations.ExamineApply(asked, k)
		switch {
		case err != nil:
			return err
		case x != nil:
			return c.print(x, func(io.Writer, int) error { return c.say("%s", strings.Join(lines, "\n")) })
		}
	}
	f, err := operations.Plan(ctx, k, commands()...)
	if err != nil {
		return err
	}
	return c.print(f, f.Print)
}

// questions are what a run asks its operator, where that is possible. What a run would do is shown at a terminal alone.
func (c *call) questions(s *session.Session) session.Questions {
	q := session.Questions{Backup: func(ctx context.Context, danger string) error {
		return offerBackup(ctx, c, s, danger)
	}}
	if !c.canPrompt() {
		return q
	}
	q.Confirm = c.confirm
	if c.Output != "text" || c.width() == 0 {
		return q
	}
	q.Consent = func(ctx context.Context, f forecast.Forecast) error {
		var text strings.Builder
		if err := f.Print(&text, c.width()); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s\n", c.hide.Text(text.String()))
		return c.confirm(ctx, "Go ahead? [yes/no] ", "yes")
	}
	return q
}

func newPlanCommand(c *call) *cobra.Command {
	cmd := c.command("plan [TARGET…]", groupLook,
		"show what a run would do with each step and why, what it creates and costs, and how long it takes", runPlan)
	cmd.ValidArgsFunction = completeTargets
	return cmd
}
