package cli

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetCommand(in *invocation) *cobra.Command {
	return in.parent("fleet", groupCluster, "many clusters, changed by Jobs in a management cluster",
		newFleetPlanCommand(in), newFleetApplyCommand(in), newFleetStatusCommand(in), newFleetLogsCommand(in),
		newFleetStopCommand(in), newFleetDestroyCommand(in), newFleetRenderCommand(in), newFleetAdvanceCommand(in),
		newFleetProvidersCommand(in))
}

// fleetRequest is what the arguments ask of a fleet, whose file may be named by the first word after the names of
// commands and so many others.
func fleetRequest(c *console, a arguments, others int) operations.Request {
	q := operations.Request{Request: a.request(), Caller: c.caller()}
	if words := a.Targets[2+others:]; len(words) > 0 { // fleet apply
		q.File = words[0]
	}
	return q
}

// addFleetClusterFlag declares the flag that leaves out the other clusters.
func addFleetClusterFlag(cmd *cobra.Command, clusters *[]string, doc string) {
	cmd.Flags().StringSliceVar(clusters, "cluster", nil, doc)
}

func addFleetNamespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "namespace", fleet.DefaultNamespace, "`NAMESPACE` of the fleet")
}
