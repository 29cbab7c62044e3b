package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// errChanges ends plan --detailed-exitcode where a run would change something. It is no failure, and not printed.
var errChanges = errors.New("a run would change something")

// planFailedError is why plan --detailed-exitcode failed. Its exit code is 1 for mistakes of the operator, too: 2 means
// changes there.
type planFailedError struct{ error }

// Unwrap is the cause.
func (e *planFailedError) Unwrap() error { return e.error }

// runPlanDetailed is runPlan whose exit code tells whether a run would change something.
func runPlanDetailed(ctx context.Context, c *call) error {
	changes, err := planTargets(ctx, c)
	switch {
	case err != nil:
		return &planFailedError{err}
	case changes:
		return errChanges
	}
	return nil
}

// runPlan prints what a run with these targets would do. It changes nothing.
func runPlan(ctx context.Context, c *call) error {
	_, err := planTargets(ctx, c)
	return err
}

// planTargets is runPlan, and tells whether a run would change something, or the cluster is not as it is configured.
func planTargets(ctx context.Context, c *call) (changes bool, err error) {
	k, err := c.load()
	if err != nil {
		return false, err
	}
	if c.word(0) == "plan" { // with -n the targets are the run's own
		k.Targets = c.Targets[1:]
	}
	if slices.Equal(k.Targets, []string{targetApply}) {
		p, lines, err := c.examineApply(ctx, k)
		switch {
		case err != nil:
			return false, err
		case p != nil:
			return p.Changes(), c.print(p, func(io.Writer, int) error { return c.say("%s", strings.Join(lines, "\n")) })
		}
	}
	if (c.Apply != operations.ApplyOptions{}) {
		return false, errOfApply
	}
	f, err := operations.Plan(ctx, k, commands()...)
	if err != nil {
		return false, err
	}
	changes = f.Changes() || f.Refused || len(f.Deviations) > 0
	return changes, c.print(f, func(out io.Writer, width int) error {
		if err := f.Print(out, width); err != nil || !f.Applies {
			return err
		}
		k.Targets = []string{targetApply}
		_, lines, err := c.examineApply(ctx, k)
		if err != nil {
			lines = []string{c.hide.Text(text.Plainly(err.Error()))}
		}
		return c.say("\n%s", strings.Join(append([]string{applyHead}, lines...), "\n"))
	})
}

// applyHead is the heading of what a run of all applies first.
const applyHead = "what apply does first:"

// examineApply says what apply would do, within a time.
func (c *call) examineApply(ctx context.Context, k session.Cluster) (*operations.ApplyPlan, []string, error) {
	asked, cancel := context.WithTimeout(ctx, examinesWithin)
	defer cancel()
	return operations.ExamineApply(asked, k, c.Apply)
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
	var detailed bool
	cmd := c.command("plan [TARGET…]", groupLook,
		"show what a run would do with each step and why, what it creates and costs, and how long it takes",
		func(ctx context.Context, c *call) error {
			if detailed {
				return runPlanDetailed(ctx, c)
			}
			return runPlan(ctx, c)
		})
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false,
		"exit code 2 where a run would change something, or the cluster is not as it is configured; 0: neither; 1: an error")
	cmd.ValidArgsFunction = completeTargets
	return cmd
}
