package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetDestroyCommand(in *invocation) *cobra.Command {
	var o operations.DestroyOptions
	cmd := in.command("destroy [FILE]", "", "delete clusters of the fleet, as Jobs in its management cluster",
		func(ctx context.Context, c *console, a arguments) error { return runFleetDestroy(ctx, c, a, o) })
	addFleetClusterFlag(cmd, &o.Clusters,
		"delete only the cluster `NAME`, which need not be in the file any more; may be given several times")
	return cmd
}

// runFleetDestroy deletes clusters of a fleet.
func runFleetDestroy(ctx context.Context, c *console, a arguments, o operations.DestroyOptions) error {
	o.Changed = fleetProgress(c, a)
	o.Confirm = func(ctx context.Context, question, want string) error { return confirm(ctx, c, question, want) }
	result, err := operations.Destroy(ctx, fleetRequest(c, a, 0), o)
	if err == nil && !result.Ended {
		fmt.Fprintf(c.stdout, "fleet %s has no clusters: nothing was done\n", result.Fleet)
	}
	printFleetEnd(c, a, result)
	return err
}
