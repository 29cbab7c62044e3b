// Package connect opens the clusters whose kubeconfigs are in the state folder.
package connect

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/platform"
)

// Cluster is the cluster of a kubeconfig in the state folder.
func Cluster(tools platform.Tools, file string) (*kube.Cluster, error) {
	data, err := tools.Files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return tools.Connect(data)
}
