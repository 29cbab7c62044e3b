package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetApplyCommand(c *call) *cobra.Command {
	var o operations.ApplyOptions
	cmd := c.command("apply [FILE]", "", "change the clusters of the fleet, as Jobs in its management cluster",
		func(ctx context.Context, c *call) error { return runFleetApply(ctx, c, o) })
	addFleetClusterFlag(cmd, &o.Clusters, "change only the cluster `NAME`; may be given several times")
	cmd.Flags().BoolVar(&o.Again, "again", false, "also run for the clusters whose last change is done and is the same")
	cmd.Flags().BoolVar(&o.Detach, "detach", false,
		"have a Job in the management cluster begin one cluster after another, and return")
	return cmd
}

// runFleetApply changes the clusters of a fleet. At a terminal it shows what would be done, and asks once.
func runFleetApply(ctx context.Context, c *call, o operations.ApplyOptions) error {
	if c.Output == "text" && c.width() > 0 && c.canPrompt() {
		o.Consent = func(ctx context.Context, f *operations.Forecast) error {
			printFleetForecast(c, f)
			return c.confirm(ctx, "Go ahead? [yes/no] ", "yes")
		}
	}
	o.Changed = fleetProgress(c)
	result, err := operations.Apply(ctx, fleetRequest(c, 0), o)
	if err == nil && result.Job != "" {
		_ = c.say("Job %s begins one cluster after another; to look: %s", result.Job, commandLine(c, "fleet", "status"))
	}
	printFleetEnd(c, result)
	if result.EndLab != "" {
		c.caller().Note("the lab stays up, with the clusters; to end it: %s", result.EndLab)
	}
	return err
}

// newFleetAdvanceCommand continues a rollout, in a Job of the management cluster or anywhere else.
func newFleetAdvanceCommand(c *call) *cobra.Command {
	var namespace, revision string
	cmd := c.command("advance FLEET", "", "begin the Jobs of a fleet that was applied, one after another",
		func(ctx context.Context, c *call) error {
			result, err := operations.Advance(ctx, fleetRequest(c, 1), c.Targets[2], namespace, revision, fleetProgress(c))
			printFleetEnd(c, result)
			return err
		})
	addFleetNamespaceFlag(cmd, &namespace)
	cmd.Flags().StringVar(&revision, "revision", "", "do nothing where the newest rollout is not `REVISION`")
	return cmd
}

// fleetProgress prints the clusters of a rollout, as each of them changes.
func fleetProgress(c *call) func(fleet.ClusterStatus) {
	return func(s fleet.ClusterStatus) {
		if c.Output != "json" {
			fmt.Fprintln(c.stdout, statusLine(s))
			return
		}
		_ = ui.PrintJSONLine(c.stdout, s)
	}
}

// statusLine is one line about a cluster.
func statusLine(s fleet.ClusterStatus) string {
	line := fmt.Sprintf("%-20s %s", s.Cluster, s.Phase)
	if s.Attempts > 1 {
		line += fmt.Sprintf(", attempt %d", s.Attempts)
	}
	if s.Phase == fleet.Done && s.Began != nil && s.Ended != nil {
		line += ", after " + text.Elapsed(s.Ended.Sub(*s.Began))
	}
	if s.Message != "" {
		line += ": " + text.Printable(lastWords(s.Message))
	}
	return line
}

// lastWords are the error that a run has ended with; where it has said none, its last line.
func lastWords(said string) string {
	lines := strings.FieldsFunc(said, func(r rune) bool { return r == '\n' })
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "error: ") {
			return line
		}
	}
	return text.LastLine(said)
}

// printFleetEnd sums up a rollout that has ended.
func printFleetEnd(c *call, r operations.Result) {
	if !r.Ended || c.Output == "json" {
		return
	}
	counts := map[fleet.Phase]int{}
	for _, s := range r.Clusters {
		counts[s.Phase]++
	}
	fmt.Fprintf(c.stdout, "\n%d clusters: %d done, %d failed, %d not begun\n", len(r.Clusters), counts[fleet.Done],
		counts[fleet.Failed], counts[fleet.Waiting])
}
