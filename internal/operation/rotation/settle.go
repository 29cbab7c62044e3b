package rotation

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// awaitWhole waits until every Machine has a Ready node, none comes or goes, and etcd has all members.
func (in inputs) awaitWhole(ctx context.Context, say flow.Say, c clusters) error {
	reader := &rollout.Reader{Cfg: in.cfg, Tools: in.tools, Management: c.manager, Workload: c.workload, NodeRefs: true}
	workers := &rollout.Reader{Cfg: in.cfg, Tools: in.tools, Management: c.manager, Workload: c.workload}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := wait.Wait{What: "the cluster to be whole", Within: in.cfg.NodesTimeout.D(), Changes: reader.Changes(watching),
		Explain: in.observer.Obstacles(c.manager, situation.WatchedOf(in.cfg))}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		state, err := reader.Read(ctx)
		if err != nil {
			return "", err
		}
		lacks := append(rollout.Leaving(ctx, c.workload, state.Machines), state.Missing(in.cfg.NetworkCIDR)...)
		ofWorkers, err := workers.ReadWorkers(ctx)
		if err != nil {
			return "", err
		}
		lacks = append(lacks, ofWorkers.Missing(in.cfg.NetworkCIDR)...)
		if foreign := withoutMachine(state.Nodes, state.Machines); foreign != "" {
			return "", wait.Final(fmt.Errorf("%s: it would not get the new authorities, and not answer any more; remove it, "+
				"or rotate by hand", foreign))
		}
		if len(lacks) > 0 {
			return wait.Sentences(lacks...), nil
		}
		return in.etcdLacks(ctx, c)
	})
}

// withoutMachine names a node that no Machine has; empty: there is none.
func withoutMachine(nodes []corev1.Node, machines []unstructured.Unstructured) string {
	of := map[string]bool{}
	for i := range machines {
		of[nodeOf(&machines[i])] = true
	}
	for i := range nodes {
		if !of[nodes[i].Name] && situation.Unnamed(&nodes[i], machines) == nil {
			return "node " + nodes[i].Name + " is of no Machine"
		}
	}
	return ""
}

// nodeOf is the name of a Machine's node, as Cluster API knows it; else that of its server.
func nodeOf(m *unstructured.Unstructured) string {
	if name := capi.Text(m, "status", "nodeRef", "name"); name != "" {
		return name
	}
	return capi.ServerOf(m)
}

// etcdLacks says which member of etcd is missing or unwell.
func (in inputs) etcdLacks(ctx context.Context, c clusters) (string, error) {
	t, err := in.talos()
	if err != nil {
		return "", err
	}
	machines, err := capi.List(ctx, c.manager, in.cfg.Namespace, capi.MachineKind, in.cfg.ClusterName)
	if err != nil {
		return "", err
	}
	planes := capi.ControlPlaneMachines(machines)
	etcd, err := etcdview.AskMembers(ctx, t, planes)
	if err != nil {
		return "", err
	}
	return etcd.Differs(capi.ServersOf(planes)), nil
}

// renewal is when the kubelet of a server last renewed its lease; zero: it has none.
func renewal(ctx context.Context, workload *kube.Cluster, s server) (time.Time, error) {
	lease := &coordinationv1.Lease{}
	err := workload.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: s.node}, lease)
	if kube.Absent(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read the lease of node %s: %w", s.node, err)
	}
	if lease.Spec.RenewTime == nil {
		return time.Time{}, nil
	}
	return lease.Spec.RenewTime.Time, nil
}

// nodeLacks says why the node of a server does not count as working: it is not Ready, or its kubelet has not reported
// since.
func nodeLacks(ctx context.Context, workload *kube.Cluster, s server, since time.Time) (string, error) {
	node := &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: s.node}, node); err != nil {
		return "", fmt.Errorf("read node %s: %w", s.node, err)
	}
	if ready, why := situation.NodeReady(node); !ready {
		return fmt.Sprintf("node %s is not Ready (%s)", s.node, why), nil
	}
	is, err := renewal(ctx, workload, s)
	if err != nil || !is.Equal(since) {
		return "", err
	}
	return "the kubelet of node " + s.node + " has not reported since its server was changed", nil
}

// progress is how far a pass has come with the control plane.
type progress struct {
	planes int // servers of the control plane
	done   int // of them, that were changed
	seen   int // that are to be seen through the endpoint of the cluster
}

// expected is how many kube-apiservers can be told apart through the endpoint: all, where Hetzner's load balancers have
// them as targets; one at least, where the endpoint is the operator's own.
func (in inputs) expected(ctx context.Context, planes int) (int, error) {
	targets, err := hetzner.Targets(ctx, in.tools.Hetzner, in.cfg.ClusterName)
	if err != nil {
		return 0, err
	}
	servers := map[int64]bool{}
	for _, t := range targets {
		servers[t.Server] = true
	}
	if len(servers) < planes {
		return 1, nil
	}
	return planes, nil
}

// apiLacks says which kube-apiservers do not answer as they are to after their servers were changed.
func (in inputs) apiLacks(ctx context.Context, c clusters, p probe, of progress) (string, error) {
	found, err := in.api.look(ctx, c.workload.Host(), p, connectionsPerServer*of.planes)
	if err != nil {
		return "", err
	}
	seen, as := len(found), 0
	for _, ok := range found {
		if ok {
			as++
		}
	}
	var lacks []string
	if seen < of.seen {
		lacks = append(lacks, fmt.Sprintf("%d of %d kube-apiservers answer through %s", seen, of.seen, c.workload.Host()))
	}
	if unchanged := seen - as; unchanged > of.planes-of.done {
		lacks = append(lacks, fmt.Sprintf("%d of %d kube-apiservers do not show the change yet", unchanged, seen))
	}
	return strings.Join(lacks, "; "), nil
}

// awaitPlane waits until the control plane is as it is to be once so many of its servers were changed.
func (in inputs) awaitPlane(ctx context.Context, say flow.Say, c clusters, p probe, of progress) error {
	w := wait.Wait{What: "the control plane to work before its next server is changed",
		Within: in.cfg.ControlPlaneTimeout.D()}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) { return in.planeLacks(ctx, c, p, of) })
}

func (in inputs) planeLacks(ctx context.Context, c clusters, p probe, of progress) (string, error) {
	etcd, err := in.etcdLacks(ctx, c)
	if err != nil || etcd != "" {
		return etcd, err
	}
	return in.apiLacks(ctx, c, p, of)
}

// settle waits until a server that was changed works again: its kubelet has reported since, its node is Ready, and, of
// the control plane, etcd is whole and so many kube-apiservers show the change.
func (in inputs) settle(ctx context.Context, say flow.Say, c clusters, p probe, s server, since time.Time,
	of progress) error {
	w := wait.Wait{What: fmt.Sprintf("server %s after its change", s.name), Within: in.cfg.ControlPlaneTimeout.D(),
		Explain: in.observer.Obstacles(c.manager, situation.WatchedOf(in.cfg))}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		lacks, err := nodeLacks(ctx, c.workload, s, since)
		if err != nil || lacks != "" || !s.controlPlane {
			return lacks, err
		}
		return in.planeLacks(ctx, c, p, of)
	})
}
