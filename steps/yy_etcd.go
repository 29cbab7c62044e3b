package steps

import (
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/etcddata"
	"github.com/slipway-k8s/slipway/internal/wait"
)

// RecoveryTarget is the one server that gets the snapshot. It is in the journal before anything is sent to it.
type RecoveryTarget struct {
	Machine string `json:"machine"`
	Server  string `json:"server"` // its name, which is the node's and the etcd member's
}

// targetAmong is the chosen server, if it answers.
func targetAmong(nodes []etcddata.Node, target RecoveryTarget) (etcddata.Node, error) {
	i := slices.IndexFunc(nodes, func(n etcddata.Node) bool { return n.Server == target.Server })
	switch {
	case i < 0:
		return etcddata.Node{}, wait.Final(fmt.Errorf("server %s, which was chosen to get the snapshot, is none of the "+
			"cluster's any more: run again, another is chosen", target.Server))
	case nodes[i].Err != nil:
		return etcddata.Node{}, nodes[i].Err
	}
	return nodes[i], nil
}

// RecoveredEtcd is the etcd that was restored.
type RecoveredEtcd struct {
	Server   string `json:"server"`   // on which
	UID      string `json:"uid"`      // of the namespace kube-system in it
	Revision int64  `json:"revision"` // at least, when it was looked at
}

// EtcdMembership are etcd's members.
type EtcdMembership struct {
	Members []string `json:"members"` // names of their servers
}
