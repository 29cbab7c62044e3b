package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

// newFleetProvidersCommand installs the providers for a fleet, in a Job of the management cluster.
func newFleetProvidersCommand(in *invocation) *cobra.Command {
	var namespace string
	cmd := in.command("providers FLEET", "", "install the providers in the management cluster, for a fleet's clusters",
		func(ctx context.Context, c *console, a arguments) error {
			err := operations.InstallProviders(ctx, fleetRequest(c, a, 1), a.Targets[2], namespace, c.stderr)
			if err == nil {
				fmt.Fprintln(c.stdout, "the providers are installed in the management cluster, and serve")
			}
			return err
		})
	addFleetNamespaceFlag(cmd, &namespace)
	return cmd
}
