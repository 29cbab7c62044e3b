package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
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
	step := machinesStep{cfg: s.cfg, tools: s.tools, observer: s.observer}
	return flow.Add(g, flow.Task[Machines]{
		Name:     "wait-machines",
		Doc:      "Cluster API knows the node of every Machine, as a move of the cluster needs it",
		Run:      flow.With2(step.run, management, cluster),
		Verify:   step.verify,
		Deadline: s.cfg.NodesTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Nodes(s.cfg)},
	})
}

// machinesStep runs and verifies the step wait-machines.
type machinesStep struct {
	cfg      config.Config
	tools    platform.Tools
	observer *situation.Observer
}

func (step machinesStep) run(ctx context.Context, say flow.Say, m Management, c Cluster) (Machines, error) {
	mgmt, err := connect.Cluster(step.tools, m.Kubeconfig)
	if err != nil {
		return Machines{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(step.cfg.Namespace, c.Name)})
	var out Machines
	err = wait.Wait{What: "the Machines", Within: step.cfg.NodesTimeout.D(), Changes: changes,
		Explain: step.observer.Obstacles(mgmt, c.watched(step.cfg.Namespace))}.Until(ctx, say, func(ctx context.Context) (string,
		error) {
		var without string
		out, without, err = step.read(ctx, mgmt)
		return without, err
	})
	return out, err
}

func (step machinesStep) read(ctx context.Context, mgmt *kube.Cluster) (out Machines, without string, err error) {
	machines, err := capi.List(ctx, mgmt, step.cfg.Namespace, capi.MachineKind, step.cfg.ClusterName)
	if err != nil {
		return Machines{}, "", err
	}
	out.Nodes = map[string]string{}
	for _, m := range machines {
		out.Nodes[m.GetName()] = capi.Text(&m, "status", "nodeRef", "name")
	}
	return out, rollout.WithoutNodeRef(machines), nil
}

func (step machinesStep) verify(ctx context.Context, _ Machines) flow.Verdict {
	mgmt, err := connect.Cluster(step.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	switch _, without, err := step.read(ctx, mgmt); {
	case err != nil:
		return kube.Verdict(err)
	case without != "":
		return flow.Gone("%s", without)
	}
	return flow.Holds()
}
