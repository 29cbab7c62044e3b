package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

// newFleetProvidersCommand installs the providers for a fleet, in a Job of the management cluster.
func newFleetProvidersCommand(c *call) *cobra.Command {
	var namespace string
	cmd := c.command("providers FLEET", "", "install the providers in the management cluster, for a fleet's clusters",
		func(ctx context.Context, c *call) error {
			if err := operations.InstallProviders(ctx, fleetRequest(c, 1), c.Targets[2], namespace, c.stderr); err != nil {
				return err
			}
			return c.say("the providers are installed in the management cluster, and serve")
		})
	addFleetNamespaceFlag(cmd, &namespace)
	return cmd
}
