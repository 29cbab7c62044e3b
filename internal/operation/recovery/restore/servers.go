package restore

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// addServers adds the step servers to a graph.
func (r etcdStep) addServers(g *flow.Graph, management *flow.Step[steps.Management],
	cluster *flow.Step[steps.Cluster]) *flow.Step[recovery.Target] {
	return flow.Add(g, flow.Task[recovery.Target]{
		Name: "servers",
		Doc: "the servers are created, Talos answers on each, and none has an etcd; one is chosen to get the " +
			"snapshot",
		Run:      flow.With2(r.chooseTarget, management, cluster),
		Spec:     r.source.Identity(),
		Verify:   r.verifyTarget,
		Deadline: r.deadline(),
		Waits:    []flow.Wait{wait.ControlPlane(r.cfg)},
	})
}

// deadline is that of each step that waits for the servers or their etcd.
func (r inputs) deadline() time.Duration { return r.cfg.ControlPlaneTimeout.D() + wait.Overhead }

// chooseTarget waits until every server answers, and chooses the one that gets the snapshot: that has it already, where
// an earlier run came so far, else the first by name. A server that does not answer may hold an etcd, so all have to.
func (r etcdStep) chooseTarget(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster) (recovery.Target,
	error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return recovery.Target{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(r.cfg.Namespace, c.Name)},
		kube.Selection{List: capi.ListOf(capi.HCloudMachineKind), Options: capi.OfCluster(r.cfg.Namespace, c.Name)},
		kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind),
			Options: []client.ListOption{client.InNamespace(r.cfg.Namespace)}},
	)
	var out recovery.Target
	stock := stockout.Watch{Cfg: r.cfg, Tools: r.tools, Sources: r.sources, Say: say}
	w := wait.Wait{What: "the servers", Within: r.cfg.ControlPlaneTimeout.D(), Every: wait.ControlPlaneEvery,
		Changes: changes,
		Explain: r.observer.Progress(mgmt,
			situation.Watched{Namespace: r.cfg.Namespace, Name: c.Name, ControlPlane: c.ControlPlane,
				LoadBalancerIP: c.LoadBalancerIP})}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		_, nodes, err := etcdview.AskMachines(ctx, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
		if kube.Absent(err) {
			return "there is no talosconfig yet", nil
		}
		if err != nil {
			return "", err
		}
		if missing := etcdview.Unanswered(nodes, c.Replicas); missing != "" {
			_, lacks, err := stock.Check(ctx, mgmt)
			return wait.Sentences(missing, lacks), err
		}
		chosen := nodes[0]
		if has := etcdview.WithData(nodes); len(has) > 0 {
			chosen = has[0]
		}
		out = recovery.Target{Machine: chosen.Machine, Server: chosen.Server}
		return "", nil
	})
	return out, err
}

// verifyTarget verifies that the chosen server is still one of the cluster's. One that was replaced meanwhile does not
// have the snapshot.
func (r etcdStep) verifyTarget(ctx context.Context, was recovery.Target) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	machine, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.MachineKind, was.Machine)
	if err != nil {
		return kube.Verdict(err)
	}
	if machine.GetDeletionTimestamp() != nil {
		return flow.Gone("Machine %s is being deleted", was.Machine)
	}
	return flow.Holds()
}
