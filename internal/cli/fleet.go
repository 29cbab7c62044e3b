package cli

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetCommand(c *call) *cobra.Command {
	return c.parent("fleet", groupCluster, "many clusters, changed by Jobs in a management cluster",
		newFleetPlanCommand(c), newFleetApplyCommand(c), newFleetStatusCommand(c), newFleetLogsCommand(c),
		newFleetStopCommand(c), newFleetDestroyCommand(c), newFleetRenderCommand(c), newFleetAdvanceCommand(c),
		newFleetProvidersCommand(c))
}

// fleetRequest is what the arguments ask of a fleet, whose file may be named by the first word after the names of
// commands and so many others.
func fleetRequest(c *call, others int) operations.Request {
	return operations.Request{Request: c.Request, Caller: c.caller(), File: c.word(2 + others)} // fleet apply FILE
}

// addFleetClusterFlag declares the flag that leaves out the other clusters.
func addFleetClusterFlag(cmd *cobra.Command, clusters *[]string, doc string) {
	cmd.Flags().StringSliceVar(clusters, "cluster", nil, doc)
}

func addFleetNamespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "namespace", fleet.DefaultNamespace, "`NAMESPACE` of the fleet")
}
