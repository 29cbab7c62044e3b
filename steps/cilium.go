package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Cilium adds the step cilium to a graph. The releases find the cluster by the kubeconfig in the state folder, which is
// there before and after the pivot.
func (s *Set) Cilium(g *flow.Graph) *flow.Step[Release] {
	step := newReleaseStep(s)
	return flow.Add(g, flow.Task[Release]{
		Name:     "cilium",
		Doc:      "Cilium's agents, the network of Pods and Services, are ready on every node",
		Run:      flow.Do(step.runCilium),
		Spec:     s.made.cilium,
		Verify:   step.verifyCilium,
		Deadline: releaseDeadline(s.cfg),
		Waits:    waitRelease(s.cfg),
	})
}

// HCloudCCM adds the step hcloud-ccm to a graph.
func (s *Set) HCloudCCM(g *flow.Graph) *flow.Step[CloudController] {
	step := newReleaseStep(s)
	return flow.Add(g, flow.Task[CloudController]{
		Name:     "hcloud-ccm",
		Doc:      "Hetzner's cloud controller manager: provider IDs and addresses of nodes, load balancers of Services",
		Run:      flow.Do(step.runHCloudCCM),
		Spec:     s.made.hcloudCCM,
		Verify:   step.verifyHCloudCCM,
		Deadline: releaseDeadline(s.cfg),
		Waits:    append(waitRelease(s.cfg), wait.Taken),
	})
}

// TalosCCM adds the step talos-ccm to a graph.
func (s *Set) TalosCCM(g *flow.Graph) *flow.Step[Release] {
	step := newReleaseStep(s)
	return flow.Add(g, flow.Task[Release]{
		Name:     "talos-ccm",
		Doc:      "Talos's cloud controller manager: approves the kubelets' certificates",
		Run:      flow.Do(step.runTalosCCM),
		Spec:     s.made.talosCCM,
		Verify:   step.verify,
		Deadline: releaseDeadline(s.cfg),
		Waits:    waitRelease(s.cfg),
	})
}

// releaseStep runs and verifies the steps that install a Helm release.
type releaseStep struct {
	cfg     config.Config
	tools   platform.Tools
	sources render.Sources
}

func newReleaseStep(s *Set) releaseStep {
	return releaseStep{cfg: s.cfg, tools: s.tools, sources: s.sources}
}

// runCilium installs the network. No node is Ready, and no Pod outside the host's network starts, before it. It waits
// for the agents: the other workloads, Hubble's, need them and Ready nodes, and wait-releases waits for those.
func (r releaseStep) runCilium(ctx context.Context, say flow.Say) (Release, error) {
	return install(ctx, r.cfg, r.tools, r.sources, say, render.CiliumChart(r.cfg, r.sources), Release.onEveryNode)
}

func (r releaseStep) verifyCilium(ctx context.Context, was Release) flow.Verdict {
	return r.verify(ctx, was.onEveryNode())
}
