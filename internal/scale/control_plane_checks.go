package scale

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/disruption"
	"github.com/slipway-k8s/slipway/internal/etcdview"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/rollout"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/stockout"
	"github.com/slipway-k8s/slipway/internal/wait"
)

// refuse says why the change is not to begin: the servers are being replaced, what is there is not whole and nothing
// that completes it is under way, no server can be created, or none can be drained.
func (p ControlPlane) refuse(ctx context.Context, with clusters, tcp *unstructured.Unstructured, c Change) error {
	if why := capi.FalseCondition(tcp, "MachinesSpecUpToDate"); why != nil {
		return refusedControlPlane("its servers are being replaced, one after another: run again when that is done (%s says "+
			"how far it is)", p.tools.Command("status"))
	}
	reader := p.reader(with)
	reader.NodeRefs = false // Cluster API sees new nodes by itself, within half a minute: Run waits for that
	lacks, _, err := p.lacks(ctx, with, reader, c.From)
	if err != nil {
		return refusedControlPlane("%v", err)
	}
	if len(c.Servers) == c.From && c.From%2 == 1 && len(lacks) > 0 {
		return refusedControlPlane("it is not whole: %s; repair that first (%s)", strings.Join(lacks, "; "),
			p.tools.Command("status"))
	}
	switch {
	case c.To > c.From:
		if err := situation.NextServerPossible(ctx, p.cfg, p.tools, with.manager); err != nil {
			return refusedControlPlane("%v", err)
		}
	case c.To < c.From:
		return p.drainable(ctx, with.workload, c.Servers)
	}
	return nil
}

// drainable is nil if each of the nodes can be drained now. Which one it will be is the control plane provider's
// choice.
func (p ControlPlane) drainable(ctx context.Context, workload *kube.Cluster, nodes []string) error {
	budgets, err := disruption.Blocking(ctx, workload, nodes)
	if err != nil {
		return refusedControlPlane("%v", err)
	}
	if len(budgets) > 0 {
		return refusedControlPlane("a server that goes is drained first, and that would wait without an end for %s: scale "+
			"its Pods up or change it, then run again", disruption.Sentence(budgets))
	}
	return nil
}

func (p ControlPlane) reader(with clusters) *rollout.Reader {
	return &rollout.Reader{Cfg: p.cfg, Tools: p.tools, Management: with.manager, Workload: with.workload, NodeRefs: true}
}

// lacks says what is missing until the control plane is whole with a number of servers: that many Machines, each a
// Ready node and a voting, healthy member of etcd, and no other member. It also returns the servers that there are.
func (p ControlPlane) lacks(ctx context.Context, with clusters, reader *rollout.Reader, replicas int) (lacks,
	servers []string, err error) {
	state, err := reader.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	machines := capi.ControlPlaneMachines(state.Machines)
	servers = serversOf(machines)
	if state.Replicas != replicas {
		lacks = append(lacks, fmt.Sprintf("the TalosControlPlane asks for %d servers instead of %d", state.Replicas,
			replicas))
	}
	lacks = append(lacks, leaving(ctx, with.workload, machines)...)
	if lacks = append(lacks, state.Missing(p.cfg.NetworkCIDR)...); len(lacks) > 0 {
		return lacks, servers, nil
	}
	etcd, err := etcdview.Ask(ctx, p.cfg, p.tools, with.manager, "")
	if err != nil {
		return nil, nil, err
	}
	if differs := etcd.Differs(servers); differs != "" {
		lacks = append(lacks, differs)
	}
	return lacks, servers, nil
}

// awaitWhole waits until the control plane is whole with a number of servers, and returns their names. A server type
// that is out of stock is handled as in a bootstrap.
func (p ControlPlane) awaitWhole(ctx context.Context, say func(string, ...any), with clusters, replicas int) (
	servers []string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := rollout.Merge(watching,
		with.manager.Changes(watching, kube.Selection{List: capi.ListOf(capi.MachineKind),
			Options: capi.OfCluster(p.cfg.Namespace, p.cfg.ClusterName)}),
		with.workload.Changes(watching, kube.Selection{List: &corev1.NodeList{}}),
	)
	reader := p.reader(with)
	stock := stockout.Watch{Cfg: p.cfg, Tools: p.tools, Sources: p.sources, Say: say}
	w := wait.Wait{What: fmt.Sprintf("%d control plane servers", replicas),
		Within: p.cfg.ControlPlaneTimeout.D() + p.cfg.NodesTimeout.D(), Changes: changes,
		Explain: p.observer.Obstacles(with.manager, situation.WatchedOf(p.cfg))}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		var lacks []string
		var err error
		if lacks, servers, err = p.lacks(ctx, with, reader, replicas); err != nil || len(lacks) == 0 {
			return "", err
		}
		_, out, err := stock.Look(ctx, with.manager)
		return wait.Sentences(append(lacks, out)...), err
	})
	return servers, err
}
