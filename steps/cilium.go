package steps

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/canary"
	"github.com/slipway-k8s/slipway/platform"
)

// Cilium adds the step cilium to a graph. The releases find the cluster by the kubeconfig in the state folder, which is
// there before and after the pivot.
func (s *Set) Cilium(g *flow.Graph) *flow.Step[Release] {
	first := canary.Waits(s.cfg.ReleaseTimeout.D())
	return flow.Add(g, flow.Task[Release]{
		Name:     "cilium",
		Doc:      "Cilium's agents, the network of Pods and Services, are ready on every node",
		Run:      doIn(s, s.runCilium),
		Spec:     s.made.releases["cilium"],
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyCilium),
		Deadline: releaseDeadline(s.cfg) + time.Duration(len(first))*s.cfg.ReleaseTimeout.D(),
		Waits:    append(first, waitRelease(s.cfg)...),
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

// runCilium installs the network. No node is Ready, and no Pod outside the host's network starts, before it. Where it
// changes, one node takes the new agent before the others. It waits for the agents: the other workloads, Hubble's, need
// them and Ready nodes, and wait-releases waits for those.
func (s *Set) runCilium(ctx context.Context, say flow.Say, workload *kube.Cluster) (Release, error) {
	return s.installAfter(ctx, say, workload, render.CiliumChart(s.cfg, s.sources), s.ciliumCanary, Release.onEveryNode)
}

// ciliumCanary has one node take another agent first, see package canary.
func (s *Set) ciliumCanary(ctx context.Context, say flow.Say, c *charted) error {
	helm, err := c.helm()
	if err != nil {
		return err
	}
	// Agents that are held back are no reason to apply the release again.
	state := func(ctx context.Context, r *kube.Release) (kube.WorkloadState, error) {
		is, err := c.state(ctx, r)
		return kube.WorkloadState{Gone: is.Gone}, err
	}
	return canary.First(ctx, say, canary.Upgrade{
		Cluster: c.workload, Helm: helm, Namespace: c.Namespace, Release: c.Release, Container: "cilium-agent",
		Chart: c.chart, Values: c.values, Within: s.cfg.ReleaseTimeout.D(),
		Apply: func(ctx context.Context, values map[string]any) error {
			_, err := c.ensure(ctx, say, values, state)
			return err
		},
		Log: s.tools.Command("logs", c.Program, "--no-follow"), Kubeconfig: s.tools.Files.Path(platform.Kubeconfig),
		Known: s.knownOfCilium,
	})
}

// knownOfCilium are the known problems of the configured version, and of the way there from another.
func (s *Set) knownOfCilium(from string) (known []string) {
	const variable = "CILIUM_VERSION"
	for _, r := range append(s.cfg.UpgradeRemarks(map[string]string{variable: from}), s.cfg.Remarks(time.Now())...) {
		if r.Variable == variable {
			known = append(known, r.Text)
		}
	}
	return known
}

func (s *Set) verifyCilium(ctx context.Context, workload *kube.Cluster, was Release) flow.Verdict {
	return s.verifyRelease(ctx, workload, was.onEveryNode())
}

// runTalosCCM installs the approver of the kubelets' certificates. Its values leave the nodes to Hetzner's.
func (s *Set) runTalosCCM(ctx context.Context, say flow.Say, workload *kube.Cluster) (Release, error) {
	return s.install(ctx, say, workload, render.TalosCCMChart(s.cfg, s.sources), nil)
}
