package steps

import (
	"github.com/slipway-k8s/slipway/platform"
)

// ClusterFiles names the files and folders of the state folder that open a cluster or belong to its recovery. Where one
// of them exists, the state folder belongs to that cluster.
func ClusterFiles() []string {
	return []string{platform.ManagementKubeconfig, platform.Kubeconfig, platform.Talosconfig, restoreFolder, quorumFolder, readoptFolder}
}
