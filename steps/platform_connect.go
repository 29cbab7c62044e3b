package steps

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/kube"
)

const managementFile = "management.kubeconfig"

const kubeconfigFile = "kubeconfig"

const talosconfigFile = "talosconfig"

// connect makes the cluster of a kubeconfig in the state folder.
func connect(tools Tools, file string) (*kube.Cluster, error) {
	data, err := tools.Files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return tools.Connect(data)
}
