package recovery

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
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

// AddForServers adds a step that waits for the servers or their etcd, and then for more.
func AddForServers[T any](g *flow.Graph, cfg config.Config, t flow.Task[T], more ...flow.Wait) *flow.Step[T] {
	t.Waits = append([]flow.Wait{wait.ControlPlane(cfg)}, more...)
	t.Deadline = wait.Overhead
	for _, w := range t.Waits {
		t.Deadline += w.Within
	}
	return flow.Add(g, t)
}

// Upload brings an etcd snapshot to a server, unless that has it. called is what people call it.
func Upload(ctx context.Context, say flow.Say, t talos.Client, to etcdview.Node, called string,
	open func() (io.ReadCloser, int64, error)) error {
	switch there, err := etcdview.HasSnapshot(ctx, t, to.Route, open); {
	case err != nil:
		return err
	case there:
		say("%s has %s already", to.Server, called)
		return nil
	}
	snapshot, size, err := open()
	if err != nil {
		return wait.Final(fmt.Errorf("open the etcd snapshot: %w", err))
	}
	defer snapshot.Close()
	say("uploading %s (%d MiB) to %s", called, size>>20, to.Server)
	return t.UploadSnapshot(ctx, to.Route, snapshot)
}

// Bootstrap asks a server to restore the snapshot that it has.
func Bootstrap(ctx context.Context, say flow.Say, t talos.Client, on etcdview.Node) error {
	say("asking %s to restore the snapshot", on.Server)
	asking, cancel := context.WithTimeout(ctx, QuestionsWithin)
	defer cancel()
	return t.BootstrapRecovered(asking, on.Route)
}

// Failed tells of an etcd that no waiting brings up on what it has restored.
func Failed(ctx context.Context, t talos.Client, n etcdview.Node) bool {
	asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	is, err := t.Ask(asking, n.Route)
	return err == nil && is.Etcd == etcdview.Failed
}

// Identify asks a cluster who it is, and how far its etcd has come.
func Identify(ctx context.Context, workload *kube.Cluster) (is Etcd, err error) {
	asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	if is.UID, err = workload.UID(asking); err != nil {
		return Etcd{}, err
	}
	is.Revision, err = etcdview.Revision(asking, workload)
	return is, err
}
