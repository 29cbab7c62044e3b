// Package connect gives access to the clusters of a state folder: it opens them by their kubeconfigs, creates and
// records the management cluster, and finds out which of the two has the Cluster API objects.
package connect

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// Cluster is the cluster of a kubeconfig in the state folder. The file may come from a store or a backup: one that
// kubeconfig.Accept does not take is an error which says how to fetch it anew, and for which kubeconfig.Refused holds.
func Cluster(tools platform.Tools, file string) (*kube.Cluster, error) {
	data, err := tools.Files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	var cluster *kube.Cluster
	if file == platform.ManagementKubeconfig {
		cluster, err = Management(tools, data)
	} else {
		cluster, err = tools.Connect(data)
	}
	if kubeconfig.Refused(err) {
		return nil, fmt.Errorf("%s is not used: %w. %s", tools.Files.Path(file), err, anew(tools, file))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tools.Files.Path(file), err)
	}
	return cluster, nil
}

// Management opens the management cluster by a kubeconfig of its provider, or by the copy of it in the state folder,
// which may come from a store. Where that is refused, because it runs a program, say, the operator's own kubeconfig is
// used in its place, which may have everything, as the next run would write it.
func Management(tools platform.Tools, data []byte) (*kube.Cluster, error) {
	cluster, err := tools.Connect(data)
	if err == nil || !kubeconfig.Refused(err) {
		return cluster, err
	}
	own, ownErr := tools.OwnKubeconfig()
	switch {
	case ownErr != nil:
		return nil, fmt.Errorf("%w; only the operator's own kubeconfig of the management cluster may have that: %w", err,
			ownErr)
	case own == nil:
		return nil, err
	}
	return tools.ConnectTrusted(own)
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
