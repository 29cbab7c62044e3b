package steps

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/platform"
)

// Nodes are nodes of the workload cluster, by name: the control plane's, or the workers.
type Nodes struct {
	Nodes []Node `json:"nodes"`
	// Continued tells with what server type and locations the control plane was continued, and why.
	Continued []string `json:"continued,omitempty"`
}

// Node is one of them, and the server that it runs on.
type Node struct {
	Name         string `json:"name"`
	ProviderID   string `json:"providerId"`
	InternalIP   string `json:"internalIp"`
	ExternalIP   string `json:"externalIp,omitempty"` // IPv4 of its server; empty: it has none
	Version      string `json:"version"`              // of its kubelet
	ControlPlane bool   `json:"controlPlane"`
}

// Nodes adds the step wait-nodes to a graph: every node of the control plane is Ready.
func (s *Set) Nodes(g *flow.Graph, management *flow.Step[Management], cluster *flow.Step[Cluster],
	kubeconfig *flow.Step[Kubeconfig]) *flow.Step[Nodes] {
	return flow.Add(g, flow.Task[Nodes]{
		Name: "wait-nodes",
		Doc:  "every control plane node is Ready and is the server that it claims to be",
		Run:  flow.With3(s.runNodes, management, cluster, kubeconfig),
		Spec: map[string]any{"controlPlaneReplicas": s.cfg.ControlPlaneReplicas,
			"kubernetesVersion": s.cfg.KubernetesVersion, "networkCidr": s.cfg.NetworkCIDR},
		Verify:   s.verifyNodes,
		Deadline: s.cfg.NodesTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Nodes(s.cfg)},
	})
}

// runNodes waits until every node of the control plane is what it should be.
func (s *Set) runNodes(ctx context.Context, say flow.Say, m Management, c Cluster, kc Kubeconfig) (Nodes, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return Nodes{}, err
	}
	workload, err := connect.Cluster(s.tools, kc.File)
	if err != nil {
		return Nodes{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var out Nodes
	var placeless string
	stock := stockout.Watch{Cfg: s.cfg, Tools: s.tools, Sources: s.sources, Say: say}
	reader := rollout.Reader{Cfg: s.cfg, Tools: s.tools, Management: mgmt, Workload: workload, Balance: say}
	err = wait.Wait{What: "the nodes", Within: s.cfg.NodesTimeout.D(), Changes: reader.Changes(watching),
		Explain: s.observer.Obstacles(mgmt, c.watched(s.cfg.Namespace))}.Until(ctx, say, func(ctx context.Context) (string,
		error) {
		r, err := reader.Read(ctx)
		if err != nil {
			return "", err
		}
		out.Nodes, placeless = nodesFrom(r.ControlPlaneNodes(), hetzner.ByProviderID(r.Servers)), r.MissingTopologyLabels()
		missing := r.Missing(s.cfg.NetworkCIDR)
		if len(missing) == 0 {
			return "", nil
		}
		_, lacks, err := stock.Check(ctx, mgmt)
		return wait.Sentences(append(missing, lacks)...), err
	})
	out.Continued = stock.Changed
	if err == nil && placeless != "" {
		say("%s", placeless)
	}
	return out, err
}

// nodesFrom takes a node's public address from its server: the cloud controller manager writes it into the Node some
// time after the node counts as initialized, or, by its configuration, never.
func nodesFrom(nodes []corev1.Node, servers map[string]hetzner.Server) (all []Node) {
	for i := range nodes {
		n := &nodes[i]
		_, controlPlane := n.Labels[capi.ControlPlaneRole]
		var public string
		if s := servers[n.Spec.ProviderID]; s.Public.IsValid() {
			public = s.Public.String()
		}
		all = append(all, Node{
			Name: n.Name, ProviderID: n.Spec.ProviderID, Version: n.Status.NodeInfo.KubeletVersion, ControlPlane: controlPlane,
			InternalIP: situation.InternalIP(n), ExternalIP: public,
		})
	}
	return all
}

// sameNodes compares all but the public addresses: another one comes with another server alone, and earlier releases
// recorded the Nodes'.
func sameNodes(are, were []Node) bool {
	return slices.EqualFunc(are, were, func(a, b Node) bool {
		a.ExternalIP, b.ExternalIP = "", ""
		return a == b
	})
}

func (s *Set) verifyNodes(ctx context.Context, was Nodes) flow.Verdict {
	mgmt, mgmtErr := connect.Cluster(s.tools, platform.ManagementKubeconfig)
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err := errors.Join(mgmtErr, err); err != nil {
		return flow.Unknown(err)
	}
	reader := rollout.Reader{Cfg: s.cfg, Tools: s.tools, Management: mgmt, Workload: workload}
	r, err := reader.Read(ctx)
	if err != nil {
		return kube.Verdict(err)
	}
	if missing := r.Missing(s.cfg.NetworkCIDR); len(missing) > 0 {
		return flow.Gone("%s", strings.Join(missing, "; "))
	}
	without, err := reader.Untargeted(ctx, r)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case len(without) > 0:
		return flow.Gone("%s", without[0])
	}
	if !sameNodes(nodesFrom(r.ControlPlaneNodes(), nil), was.Nodes) {
		return flow.Gone("the nodes are others than the recorded")
	}
	return flow.Holds()
}
