package steps

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Nodes are the nodes of the workload cluster, by name.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Node is one of them, and the server that it runs on.
type Node struct {
	Name         string `json:"name"`
	ProviderID   string `json:"providerId"`
	InternalIP   string `json:"internalIp"`
	ExternalIP   string `json:"externalIp,omitempty"`
	Version      string `json:"version"` // of its kubelet
	ControlPlane bool   `json:"controlPlane"`
}

// Nodes adds the step wait-nodes to a graph: every node is Ready.
func (s *Set) Nodes(g *flow.Graph, management *flow.Step[Management], cluster *flow.Step[Cluster], kubeconfig *flow.Step[Kubeconfig]) *flow.Step[Nodes] {
	step := newNodesStep(s)
	return flow.Add3(g, "wait-nodes", step.run, management, cluster, kubeconfig).
		Doc("every node is Ready, is the server that it claims to be, and is known to Cluster API").
		Spec(s.made.nodes).Verify(step.verify).Deadline(s.cfg.NodesTimeout.D() + overhead).Waits(waitNodes(s.cfg))
}

// nodesStep runs and verifies the step wait-nodes.
type nodesStep struct {
	cfg      config.Config
	tools    platform.Tools
	observer *situation.Observer
}

func newNodesStep(s *Set) nodesStep {
	return nodesStep{cfg: s.cfg, tools: s.tools, observer: s.observer}
}

// run waits until every node is what it should be.
func (n nodesStep) run(ctx context.Context, say flow.Say, m Management, c Cluster, kc Kubeconfig) (Nodes, error) {
	mgmt, err := connect.Cluster(n.tools, m.Kubeconfig)
	if err != nil {
		return Nodes{}, err
	}
	workload, err := connect.Cluster(n.tools, kc.File)
	if err != nil {
		return Nodes{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := merge(watching,
		mgmt.Changes(watching, kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(c.Name)}),
		workload.Changes(watching, kube.Selection{List: &corev1.NodeList{}}),
	)
	var out Nodes
	var placeless string
	err = wait.Wait{What: "the nodes", Within: n.cfg.NodesTimeout.D(), Changes: changes, Explain: n.observer.Obstacles(mgmt, c.watched())}.Until(ctx, say, func(ctx context.Context) (string, error) {
		r, err := readNodeRollout(ctx, n.cfg, n.tools, mgmt, workload)
		if err != nil {
			return "", err
		}
		out, placeless = r.output(), r.placeless()
		return strings.Join(r.missing(n.cfg.NetworkCIDR), "; "), nil
	})
	if err == nil && placeless != "" {
		say("%s", placeless)
	}
	return out, err
}

// placeless is a note about nodes that do not say where they stand. The cluster works without: only what spreads Pods over
// regions or zones does not see any.
func (r nodeRollout) placeless() string {
	var names []string
	for i := range r.nodes {
		if l := r.nodes[i].Labels; l[corev1.LabelTopologyRegion] == "" || l[corev1.LabelTopologyZone] == "" {
			names = append(names, r.nodes[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("note: %s without %s or %s: known of hcloud-ccm 1.29.2, which reads a property of servers that the Hetzner API "+
		"no longer has; a later one (see the changelog of v1.35.0) does not", strings.Join(names, ", "), corev1.LabelTopologyRegion, corev1.LabelTopologyZone)
}

// merge joins two signals into one.
func merge(ctx context.Context, a, b <-chan struct{}) <-chan struct{} {
	both := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-a:
			case <-b:
			}
			select {
			case both <- struct{}{}:
			default: // one is waiting already
			}
		}
	}()
	return both
}

// nodeRollout is everything that has to agree about the nodes. How many there should be, and at which version, is asked of the
// control plane itself: the guide scales and upgrades it with kubectl.
type nodeRollout struct {
	replicas int    // of the control plane
	version  string // of Kubernetes
	rolling  string // what its servers do not have yet
	nodes    []corev1.Node
	machines []unstructured.Unstructured
	servers  []hetzner.Server
}

func readNodeRollout(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt, workload *kube.Cluster) (r nodeRollout, err error) {
	tcp, err := capi.Get(ctx, mgmt, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil {
		return nodeRollout{}, err
	}
	r.replicas, r.version, r.rolling = int(capi.Number(tcp, "spec", "replicas")), capi.Text(tcp, "spec", "version"), capi.Rolling(tcp)
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return nodeRollout{}, fmt.Errorf("list the nodes: %w", err)
	}
	r.nodes = nodes.Items
	slices.SortFunc(r.nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	if r.machines, err = capi.List(ctx, mgmt, capi.MachineKind, cfg.ClusterName); err != nil {
		return nodeRollout{}, err
	}
	r.servers, err = hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	return r, err
}

// missing lists what does not agree yet.
func (r nodeRollout) missing(networkCIDR string) []string {
	var missing []string
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }

	if r.rolling != "" {
		add("%s", r.rolling)
	}
	if n := len(capi.ControlPlaneMachines(r.machines)); n != r.replicas {
		add("%d control plane Machines instead of %d", n, r.replicas)
	}
	if len(r.nodes) != len(r.machines) {
		add("%d nodes for %d Machines", len(r.nodes), len(r.machines))
	}
	if len(r.servers) != len(r.machines) {
		add("%d servers for %d Machines", len(r.servers), len(r.machines))
	}
	servers := map[string]hetzner.Server{}
	for _, s := range r.servers {
		servers[s.ProviderID()] = s
	}
	network, err := netip.ParsePrefix(networkCIDR)
	if err != nil {
		add("networkCidr: %v", err)
	}
	var why wait.Reasons
	for i := range r.nodes {
		for _, problem := range situation.NodeProblems(&r.nodes[i], servers, network, r.version) {
			why.Add(r.nodes[i].Name, problem)
		}
	}
	missing = append(missing, why.Lines()...)
	var unknown []string
	for _, m := range r.machines {
		if capi.Text(&m, "status", "nodeRef", "name") == "" {
			unknown = append(unknown, m.GetName())
		}
	}
	if len(unknown) > 0 {
		add("Cluster API has not seen the nodes of Machines %s (it looks twice a minute)", strings.Join(unknown, ", "))
	}
	return missing
}

func (r nodeRollout) output() Nodes {
	var out Nodes
	for i := range r.nodes {
		n := &r.nodes[i]
		_, controlPlane := n.Labels[capi.ControlPlaneRole]
		out.Nodes = append(out.Nodes, Node{
			Name: n.Name, ProviderID: n.Spec.ProviderID, Version: n.Status.NodeInfo.KubeletVersion, ControlPlane: controlPlane,
			InternalIP: situation.NodeAddress(n, corev1.NodeInternalIP), ExternalIP: situation.NodeAddress(n, corev1.NodeExternalIP),
		})
	}
	return out
}

func (n nodesStep) verify(ctx context.Context, was Nodes) flow.Verdict {
	mgmt, mgmtErr := connect.Cluster(n.tools, platform.ManagementKubeconfig)
	workload, err := connect.Cluster(n.tools, platform.Kubeconfig)
	if err := errors.Join(mgmtErr, err); err != nil {
		return flow.Unknown(err)
	}
	r, err := readNodeRollout(ctx, n.cfg, n.tools, mgmt, workload)
	if err != nil {
		return verdictFromError(err)
	}
	if missing := r.missing(n.cfg.NetworkCIDR); len(missing) > 0 {
		return flow.Gone("%s", strings.Join(missing, "; "))
	}
	if is := r.output(); !slices.Equal(is.Nodes, was.Nodes) {
		return flow.Gone("the nodes are others than the recorded")
	}
	return flow.Holds()
}
