package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Machines are the Machines of Cluster API, and the node that it has found of each: name → name.
type Machines struct {
	Nodes map[string]string `json:"nodes"`
}

// Machines adds the step wait-machines to a graph: Cluster API knows the node of every Machine. It connects to a new
// cluster twice a minute until that succeeds, so that this comes up to half a minute after the nodes are Ready; what
// does not need it goes on beside it.
func (s *Set) Machines(g *flow.Graph, management *flow.Step[Management],
	cluster *flow.Step[Cluster]) *flow.Step[Machines] {
	return flow.Add(g, flow.Task[Machines]{
		Name:     "wait-machines",
		Doc:      "Cluster API knows the node of every Machine, as a move of the cluster needs it",
		Run:      flow.With2(s.runMachines, management, cluster),
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyMachines),
		Deadline: s.cfg.NodesTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Nodes(s.cfg)},
	})
}

func (s *Set) runMachines(ctx context.Context, say flow.Say, m Management, c Cluster) (Machines, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return Machines{}, err
	}
	var out Machines
	w := wait.Wait{What: "the Machines", Within: s.cfg.NodesTimeout.D(),
		Explain: s.observer.Obstacles(mgmt, c.watched(s.cfg.Namespace))}
	err = untilIn(ctx, say, w, mgmt, s.ofCluster(capi.MachineKind), func(ctx context.Context) (without string, err error) {
		out, without, err = s.readMachines(ctx, mgmt)
		return without, err
	})
	return out, err
}

func (s *Set) readMachines(ctx context.Context, mgmt *kube.Cluster) (out Machines, without string, err error) {
	machines, err := capi.List(ctx, mgmt, s.cfg.Namespace, capi.MachineKind, s.cfg.ClusterName)
	if err != nil {
		return Machines{}, "", err
	}
	out.Nodes = map[string]string{}
	for _, m := range machines {
		out.Nodes[m.GetName()] = capi.Text(&m, "status", "nodeRef", "name")
	}
	return out, rollout.WithoutNodeRef(machines), nil
}

func (s *Set) verifyMachines(ctx context.Context, mgmt *kube.Cluster, _ Machines) flow.Verdict {
	_, without, err := s.readMachines(ctx, mgmt)
	return complete(without, err)
}
