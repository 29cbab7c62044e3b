package cli

import "github.com/slipway-k8s/slipway/internal/fleet"

// fleetManuals has one for every command of fleet.
func fleetManuals() map[string]manual {
	file := explained{"FILE", "the fleet's; none: " + fleet.FleetFile}
	const management = "the management cluster (MANAGEMENT_KUBECONFIG, or the one that it runs in), or --lab"
	return map[string]manual{
		"fleet plan": {arguments: []explained{file}, needs: management + "; the Hetzner tokens that the file names",
			changes: nothing, example: "fleet plan", page: "fleet.md"},
		"fleet apply": {arguments: []explained{file},
			needs:   management + "; the Hetzner tokens that the file names; STATE_IDENTITY_FILE or STATE_IDENTITY the first time",
			changes: "the management cluster: Jobs, their configuration and Secrets; the Jobs change the clusters",
			example: "fleet apply --cluster shop", page: "fleet.md#what-runs-where"},
		"fleet status": {arguments: []explained{file}, needs: management, changes: nothing, example: "fleet status",
			page: "fleet.md#what-runs-where"},
		"fleet logs": {arguments: []explained{{"CLUSTER", "its name in the file"}, file}, needs: management, changes: nothing,
			example: "fleet logs shop --follow", page: "fleet.md#what-runs-where"},
		"fleet stop": {arguments: []explained{file}, needs: management,
			changes: "the rollout in the management cluster: no further cluster is begun", example: "fleet stop",
			page: "fleet.md#what-runs-where"},
		"fleet destroy": {arguments: []explained{file}, needs: management,
			changes: "deletes clusters by Jobs in the management cluster, with all that they have at Hetzner; asks first",
			example: "fleet destroy --cluster shop", page: "fleet.md#what-runs-where"},
		"fleet render": {arguments: []explained{file}, needs: nothing,
			changes: nothing + "; it prints a Job, and what it needs, to be kept in Git", example: "fleet render", page: "fleet.md#from-git"},
		"fleet advance": {arguments: []explained{{"FLEET", "its name"}}, needs: management + "; that the fleet was applied",
			changes: "the management cluster: begins the Jobs whose turn has come", example: "fleet advance demo",
			page: "fleet.md#what-runs-where"},
		"fleet providers": {arguments: []explained{{"FLEET", "its name"}}, needs: management,
			changes: "the management cluster: Cluster API and its providers are installed", example: "fleet providers demo",
			page: "fleet.md#what-runs-where"},
	}
}
