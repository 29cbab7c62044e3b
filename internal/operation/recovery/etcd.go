package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Target is the one server that gets the snapshot. It is in the journal before anything is sent to it.
type Target struct {
	Machine string `json:"machine"`
	Server  string `json:"server"` // its name, which is the node's and the etcd member's
}

// TargetAmong is the chosen server, if it answers.
func TargetAmong(nodes []etcdview.Node, target Target) (etcdview.Node, error) {
	i := slices.IndexFunc(nodes, func(n etcdview.Node) bool { return n.Server == target.Server })
	switch {
	case i < 0:
		return etcdview.Node{}, wait.Final(fmt.Errorf("server %s, which was chosen to get the snapshot, is none of the "+
			"cluster's any more: run again, another is chosen", target.Server))
	case nodes[i].Err != nil:
		return etcdview.Node{}, nodes[i].Err
	}
	return nodes[i], nil
}

// Etcd is the etcd that was restored.
type Etcd struct {
	Server   string `json:"server"`   // on which
	UID      string `json:"uid"`      // of the namespace kube-system in it
	Revision int64  `json:"revision"` // at least, when it was looked at
}

// Membership are etcd's members.
type Membership struct {
	Members []string `json:"members"` // names of their servers
}

// QuestionsWithin bounds what is asked in a look that may be a whole upload, besides it.
const QuestionsWithin = time.Minute
