package rotation

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
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
			return "", wait.Final(fmt.Errorf("%s: it would not get the new authorities, and not answer any more; "+
				"remove it, or rotate by hand", foreign))
		}
		if len(lacks) > 0 {
			return wait.Sentences(lacks...), nil
		}
		etcd, servers, err := in.askEtcd(ctx, c)
		return etcd.Differs(servers), err
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

// kubeletService is the name of the kubelet among Talos's services.
const kubeletService = "kubelet"

// askEtcd asks all members of the control plane's etcd.
func (in inputs) askEtcd(ctx context.Context, c clusters) (view etcdview.View, servers []string, err error) {
	t, err := in.talos()
	if err != nil {
		return view, nil, err
	}
	balancer, err := in.balancer()
	if err != nil {
		return view, nil, err
	}
	machines, err := capi.List(ctx, c.manager, in.cfg.Namespace, capi.MachineKind, in.cfg.ClusterName)
	if err != nil {
		return view, nil, err
	}
	planes := capi.ControlPlaneMachines(machines)
	view, err = etcdview.AskMembers(ctx, t, planes, balancer)
	return view, capi.ServersOf(planes), err
}

// unreadyNode says why the node of a server is not Ready; empty: it is.
func unreadyNode(ctx context.Context, workload *kube.Cluster, s server) (string, error) {
	node := &corev1.Node{}
	err := workload.Get(ctx, client.ObjectKey{Name: s.node}, node)
	if kube.Absent(err) {
		return "node " + s.node + " does not exist", nil
	}
	if err != nil {
		return "", fmt.Errorf("read node %s: %w", s.node, err)
	}
	if ready, why := situation.NodeReady(node); !ready {
		return fmt.Sprintf("node %s is not Ready (%s)", s.node, why), nil
	}
	return "", nil
}

// kubeletLacks says why the kubelet of a server does not count as restarted: Talos has not, or it has not reported
// since then. Both times are by the server's clock.
func (in inputs) kubeletLacks(ctx context.Context, c clusters, s server, before time.Time) (string, error) {
	t, err := in.talos()
	if err != nil {
		return "", err
	}
	var is talos.Service
	for _, route := range s.routes {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		is, err = t.Service(asking, route, kubeletService)
		cancel()
		if err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return "", err
	case !is.Healthy || !is.Started.After(before):
		return "Talos is restarting the kubelet of " + s.name, nil
	}
	lease := &coordinationv1.Lease{}
	err = c.workload.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: s.node}, lease)
	if err != nil && !kube.Absent(err) {
		return "", fmt.Errorf("read the lease of node %s: %w", s.node, err)
	}
	if renewed := lease.Spec.RenewTime; renewed == nil || renewed.Before(&metav1.MicroTime{Time: is.Started}) {
		return "the kubelet of node " + s.node + " has not reported since it was restarted", nil
	}
	return unreadyNode(ctx, c.workload, s)
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
		lacks = append(lacks, fmt.Sprintf("%d of %d kube-apiservers answer through %s", seen, of.seen,
			c.workload.Host()))
	}
	if unchanged := seen - as; unchanged > of.planes-of.done {
		lacks = append(lacks, fmt.Sprintf("%d of %d kube-apiservers do not show the change yet", unchanged, seen))
	}
	return strings.Join(lacks, "; "), nil
}

// awaitPlane waits until the control plane is as it is to be once so many of its servers were changed.
func (in inputs) awaitPlane(ctx context.Context, say flow.Say, c clusters, a authorities, p pass, of progress) error {
	w := wait.Wait{What: "the control plane to work before its next server is changed",
		Within: in.cfg.ControlPlaneTimeout.D(), Each: time.Minute}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) { return in.planeLacks(ctx, c, a, p, of) })
}

// planeLacks says what keeps the control plane from losing one of its servers for a moment.
func (in inputs) planeLacks(ctx context.Context, c clusters, a authorities, p pass, of progress) (string, error) {
	etcd, _, err := in.askEtcd(ctx, c)
	if err != nil {
		return "", err
	}
	if len(etcd.Healthy()) <= len(etcd.Voters())/2 {
		return "etcd: " + etcd.String(), nil
	}
	if p.seen == nil {
		return "", nil
	}
	return in.apiLacks(ctx, c, p.seen(a), of)
}

// settle waits until a server that was changed works again: its kubelet has been restarted, its node is as Ready as it
// was, and, of the control plane, so many kube-apiservers show the change.
func (in inputs) settle(ctx context.Context, say flow.Say, c clusters, a authorities, p pass, s server,
	before nodeBefore, of progress) error {
	w := wait.Wait{What: fmt.Sprintf("server %s after its change", s.name), Within: in.cfg.ControlPlaneTimeout.D(),
		Each: time.Minute}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		if p.seen != nil && before.ready {
			if lacks, err := in.kubeletLacks(ctx, c, s, before.kubelet); err != nil || lacks != "" {
				return lacks, err
			}
		}
		if !s.controlPlane {
			return "", nil
		}
		return in.planeLacks(ctx, c, a, p, of)
	})
}
