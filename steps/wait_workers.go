package steps

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// WaitWorkers adds the step wait-workers to a graph: every worker is a Ready node. It waits for all
// MachineDeployments of the cluster, those of the operator's own manifests as well.
func (s *Set) WaitWorkers(g *flow.Graph, workers *flow.Step[Workers]) *flow.Step[Nodes] {
	return flow.Add(g, flow.Task[Nodes]{
		Name:     "wait-workers",
		Doc:      "every MachineDeployment has its servers, and each of them is a Ready node",
		Run:      flow.With1(s.runWaitWorkers, workers),
		Verify:   s.verifyWaitWorkers,
		Deadline: s.cfg.NodesTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Answer, wait.Nodes(s.cfg)},
	})
}

func (s *Set) workerReader(ctx context.Context, say flow.Say) (*rollout.Reader, error) {
	mgmt, mgmtErr := s.manager(ctx, say)
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	return &rollout.Reader{Cfg: s.cfg, Tools: s.tools, Management: mgmt, Workload: workload},
		errors.Join(mgmtErr, err)
}

func (s *Set) runWaitWorkers(ctx context.Context, say flow.Say, _ Workers) (Nodes, error) {
	reader, err := s.workerReader(ctx, say)
	if err != nil {
		return Nodes{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := reader.Changes(watching, capi.MachineDeploymentKind)
	var out Nodes
	err = wait.Wait{What: "the workers", Within: s.cfg.NodesTimeout.D(), Changes: changes,
		Explain: s.observer.ObstaclesOfWorkers(reader.Management, situation.WatchedOf(s.cfg))}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			r, err := reader.ReadWorkers(ctx)
			if err != nil {
				return "", err
			}
			out = Nodes{Nodes: nodesFrom(r.Nodes, hetzner.ByProviderID(r.Servers))}
			return wait.Sentences(r.Missing(s.cfg.NetworkCIDR)...), nil
		})
	return out, err
}

func (s *Set) verifyWaitWorkers(ctx context.Context, was Nodes) flow.Verdict {
	if len(was.Nodes)+len(s.cfg.Workers) == 0 {
		return flow.Holds()
	}
	reader, err := s.workerReader(ctx, nil)
	if err != nil {
		return flow.Unknown(err)
	}
	r, err := reader.ReadWorkers(ctx)
	if err != nil {
		return kube.Verdict(err)
	}
	if missing := r.Missing(s.cfg.NetworkCIDR); len(missing) > 0 {
		return flow.Gone("%s", strings.Join(missing, "; "))
	}
	if !sameNodes(nodesFrom(r.Nodes, nil), was.Nodes) {
		return flow.Gone("the workers are others than the recorded")
	}
	return flow.Holds()
}
