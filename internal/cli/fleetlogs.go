package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetLogsCommand(in *invocation) *cobra.Command {
	var follow bool
	cmd := in.command("logs CLUSTER [FILE]", "", "print what the run of a cluster writes",
		func(ctx context.Context, c *console, a arguments) error {
			line := func(text string) { fmt.Fprintln(c.stdout, text) }
			return operations.Logs(ctx, fleetRequest(c, a, 1), a.Targets[2], follow, line)
		})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow it until the cluster's Job has ended")
	return cmd
}
