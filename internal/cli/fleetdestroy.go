package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetDestroyCommand(c *call) *cobra.Command {
	var o operations.DestroyOptions
	cmd := c.command("destroy [FILE]", "", "delete clusters of the fleet, as Jobs in its management cluster",
		func(ctx context.Context, c *call) error { return runFleetDestroy(ctx, c, o) })
	addFleetClusterFlag(cmd, &o.Clusters,
		"delete only the cluster `NAME`, which need not be in the file any more; may be given several times")
	return cmd
}

// runFleetDestroy deletes clusters of a fleet.
func runFleetDestroy(ctx context.Context, c *call, o operations.DestroyOptions) error {
	o.Changed = fleetProgress(c)
	o.Confirm = c.confirm
	result, err := operations.Destroy(ctx, fleetRequest(c, 0), o)
	if err == nil && !result.Ended {
		_ = c.say("fleet %s has no clusters: nothing was done", result.Fleet)
	}
	printFleetEnd(c, result)
	return err
}
