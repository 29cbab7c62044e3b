package platform

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/kube"
)

const ManagementKubeconfig = "management.kubeconfig"

const Kubeconfig = "kubeconfig"

const Talosconfig = "talosconfig"

// Connect makes the cluster of a kubeconfig in the state folder.
func Connect(tools Tools, file string) (*kube.Cluster, error) {
	data, err := tools.Files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return tools.Connect(data)
}
