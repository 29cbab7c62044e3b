package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Cilium adds the step cilium to a graph. The releases find the cluster by the kubeconfig in the state folder, which is
// there before and after the pivot.
func (s *Set) Cilium(g *flow.Graph) *flow.Step[Release] {
	return flow.Add(g, flow.Task[Release]{
		Name:     "cilium",
		Doc:      "Cilium's agents, the network of Pods and Services, are ready on every node",
		Run:      doIn(s, s.runCilium),
		Spec:     s.made.releases["cilium"],
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyCilium),
		Deadline: releaseDeadline(s.cfg),
		Waits:    waitRelease(s.cfg),
	})
}

// HCloudCCM adds the step hcloud-ccm to a graph.
func (s *Set) HCloudCCM(g *flow.Graph) *flow.Step[CloudController] {
	return flow.Add(g, flow.Task[CloudController]{
		Name:     "hcloud-ccm",
		Doc:      "Hetzner's cloud controller manager: provider IDs and addresses of nodes, load balancers of Services",
		Run:      doIn(s, s.runHCloudCCM),
		Spec:     s.made.releases["hcloud-ccm"],
		Verify:   s.verifyHCloudCCM,
		Deadline: releaseDeadline(s.cfg),
		Waits:    append(waitRelease(s.cfg), wait.Taken),
	})
}

// TalosCCM adds the step talos-ccm to a graph.
func (s *Set) TalosCCM(g *flow.Graph) *flow.Step[Release] {
	return flow.Add(g, flow.Task[Release]{
		Name:     "talos-ccm",
		Doc:      "Talos's cloud controller manager: approves the kubelets' certificates",
		Run:      doIn(s, s.runTalosCCM),
		Spec:     s.made.releases["talos-ccm"],
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyRelease),
		Deadline: releaseDeadline(s.cfg),
		Waits:    waitRelease(s.cfg),
	})
}

// runCilium installs the network. No node is Ready, and no Pod outside the host's network starts, before it. It waits
// for the agents: the other workloads, Hubble's, need them and Ready nodes, and wait-releases waits for those.
func (s *Set) runCilium(ctx context.Context, say flow.Say, workload *kube.Cluster) (Release, error) {
	return s.install(ctx, say, workload, render.CiliumChart(s.cfg, s.sources), Release.onEveryNode)
}

func (s *Set) verifyCilium(ctx context.Context, workload *kube.Cluster, was Release) flow.Verdict {
	return s.verifyRelease(ctx, workload, was.onEveryNode())
}

// runTalosCCM installs the approver of the kubelets' certificates. Its values leave the nodes to Hetzner's.
func (s *Set) runTalosCCM(ctx context.Context, say flow.Say, workload *kube.Cluster) (Release, error) {
	return s.install(ctx, say, workload, render.TalosCCMChart(s.cfg, s.sources), nil)
}
