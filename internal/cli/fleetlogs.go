package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetLogsCommand(c *call) *cobra.Command {
	var follow bool
	cmd := c.command("logs CLUSTER [FILE]", "", "print what the run of a cluster writes",
		func(ctx context.Context, c *call) error {
			line := func(text string) { fmt.Fprintln(c.stdout, text) }
			return operations.Logs(ctx, fleetRequest(c, 1), c.Targets[2], follow, line)
		})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow it until the cluster's Job has ended")
	return cmd
}
