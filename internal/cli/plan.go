package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runPlan prints what a run with these targets would do. It changes nothing.
func runPlan(ctx context.Context, c *console, a arguments) error {
	if len(a.Targets) > 0 && a.Targets[0] == "plan" { // with -n the targets are the run's own
		a.Targets = a.Targets[1:]
	}
	k, err := loadCluster(c, a)
	if err != nil {
		return err
	}
	f, err := operations.Plan(ctx, k, commands()...)
	if err != nil {
		return err
	}
	return printForecast(c, f, a.Options.Output)
}

func printForecast(c *console, f forecast.Forecast, output string) error {
	if output == "json" {
		return ui.PrintJSON(c.stdout, f)
	}
	return f.Print(c.stdout, c.width())
}

// questions are what a run asks its operator, where that is possible. What a run would do is shown at a terminal alone.
func (r *running) questions() session.Questions {
	c := r.console
	q := session.Questions{Backup: func(ctx context.Context, danger string) error {
		return offerBackup(ctx, r, danger)
	}}
	if !canPrompt(c) {
		return q
	}
	q.Confirm = func(ctx context.Context, question, want string) error { return confirm(ctx, c, question, want) }
	if r.options.Output != "text" || c.width() == 0 {
		return q
	}
	q.Consent = func(ctx context.Context, f forecast.Forecast) error {
		var text strings.Builder
		if err := f.Print(&text, c.width()); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s\n", c.hide.Text(text.String()))
		return confirm(ctx, c, "Go ahead? [yes/no] ", "yes")
	}
	return q
}

func newPlanCommand(in *invocation) *cobra.Command {
	cmd := in.command("plan [TARGET…]", groupLook,
		"show what a run would do with each step and why, what it creates and costs, and how long it takes", runPlan)
	cmd.ValidArgsFunction = completeTargets
	return cmd
}
