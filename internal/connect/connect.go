// Package connect opens the clusters whose kubeconfigs are in the state folder, and puts newer ones there.
package connect

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// Cluster is the cluster of a kubeconfig in the state folder. The file may come from a store or a backup: one that
// kubeconfig.Accept does not take is an error which says how to fetch it anew, and for which kubeconfig.Refused holds.
func Cluster(tools platform.Tools, file string) (*kube.Cluster, error) {
	data, err := tools.Files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	open := tools.Connect
	if file == platform.ManagementKubeconfig {
		open = tools.ConnectManagement
	}
	cluster, err := open(data)
	if kubeconfig.Refused(err) {
		return nil, fmt.Errorf("%s is not used: %w. %s", tools.Files.Path(file), err, anew(tools, file))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tools.Files.Path(file), err)
	}
	return cluster, nil
}

// anew says how to fetch a kubeconfig that cannot be used.
func anew(tools platform.Tools, file string) string {
	path := tools.Files.Path(file)
	if file == platform.ManagementKubeconfig {
		return fmt.Sprintf("Move %s away: the next run fetches it anew from the provider of the management cluster", path)
	}
	return fmt.Sprintf("Move %s away. Where a management cluster manages the cluster, %s fetches it anew; where the "+
		"cluster manages itself: talosctl --talosconfig %s --nodes ADDRESS kubeconfig %s, with the address of a control "+
		"plane server", path, tools.Command("kubeconfig"), tools.Files.Path(platform.Talosconfig), path)
}
