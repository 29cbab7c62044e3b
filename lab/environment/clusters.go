package environment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/slot"
)

// ClusterRanges are the address ranges of a cluster.
type ClusterRanges struct {
	NetworkCIDR      string `json:"networkCidr"`
	ControlPlaneCIDR string `json:"controlPlaneCidr"`
	PodCIDR          string `json:"podCidr"`
	ServiceCIDR      string `json:"serviceCidr"`
}

func rangesOf(s slot.Slot, index int) ClusterRanges {
	r := s.Ranges(index)
	return ClusterRanges{NetworkCIDR: r.Network.String(), ControlPlaneCIDR: r.ControlPlane.String(), PodCIDR: r.Pod.String(),
		ServiceCIDR: r.Service.String()}
}

func (lab *Lab) clusterRanges() map[string]ClusterRanges {
	all := map[string]ClusterRanges{}
	for _, c := range lab.state.Workload() {
		all[c.Name] = rangesOf(lab.state.Slot(), c.Index)
	}
	return all
}

// admitCluster gives a cluster ranges of its own. All clusters of the lab are on one loopback interface: two servers
// with one private address could not both listen.
func (lab *Lab) admitCluster(name string) (Info, error) {
	if err := admit(lab.state, name, lab.cloud.Servers()); err != nil {
		return Info{}, control.BadRequest(err)
	}
	return lab.info(), nil
}

// admit records the index of a cluster's ranges, once.
func admit(state *folder.State, name string, servers []cloud.Server) error {
	if name == "" || len(name) > 63 {
		return fmt.Errorf("%q is no name of a cluster", name)
	}
	return state.Update(func(data *folder.Data) error {
		if len(data.Workload) == 0 {
			data.Workload = clustersOf(servers)
		}
		taken := map[int]bool{}
		var names []string
		for _, c := range data.Workload {
			if c.Name == name {
				return nil
			}
			taken[c.Index], names = true, append(names, c.Name)
		}
		for index := range slot.MostClusters {
			if !taken[index] {
				data.Workload = append(data.Workload, folder.Cluster{Name: name, Index: index})
				return nil
			}
		}
		return fmt.Errorf("the lab has address ranges for %d clusters, and has given them to %s: a lab in another folder has "+
			"ranges of its own (--lab-dir)", slot.MostClusters, strings.Join(names, ", "))
	})
}

// clusterLabel begins the label by which CAPH marks a cluster's servers.
const clusterLabel = "caph-cluster-"

// clustersOf finds the clusters that servers belong to, for a lab that has recorded none, as labs of older releases
// did: all of them have the first ranges.
func clustersOf(servers []cloud.Server) []folder.Cluster {
	found := map[string]bool{}
	for _, s := range servers {
		for label := range s.Labels {
			if name, is := strings.CutPrefix(label, clusterLabel); is {
				found[name] = true
			}
		}
	}
	var all []folder.Cluster
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, folder.Cluster{Name: name})
	}
	return all
}
