package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
)

// refuse says why the change is not to begin: the servers are being replaced, what is there is not whole and nothing
// that completes it is under way, no server can be created, or none can be drained. A server that joins is waited for,
// as by the run that asked for it.
func (p ControlPlane) refuse(ctx context.Context, with clusters, tcp *unstructured.Unstructured, c Change) error {
	if capi.FalseCondition(tcp, "MachinesSpecUpToDate") != (capi.Condition{}) {
		return refusedControlPlane("its servers are being replaced, one after another: run again when that is done (%s says "+
			"how far it is)", p.tools.Command("status"))
	}
	reader := p.reader(with)
	reader.NodeRefs = false // Cluster API sees new nodes by itself, within half a minute: Run waits for that
	now, err := p.look(ctx, with, reader, c.From)
	if err != nil {
		return refusedControlPlane("%v", err)
	}
	if now.repair != "" {
		return refusedControlPlane("%s", now.repair)
	}
	if len(c.Servers) == c.From && c.From%2 == 1 && len(now.lacks) > 0 && len(now.joining) == 0 {
		return refusedControlPlane("it is not whole: %s; repair that first (%s)", strings.Join(now.lacks, "; "),
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
	budgets, err := rollout.BlockingBudgets(ctx, workload, nodes)
	if err != nil {
		return refusedControlPlane("%v", err)
	}
	if len(budgets) > 0 {
		return refusedControlPlane("a server that goes is drained first, and that would wait without an end for %s: scale "+
			"its Pods up or change it, then run again", rollout.BudgetSentence(budgets))
	}
	return nil
}

func (p ControlPlane) reader(with clusters) *rollout.Reader {
	return &rollout.Reader{Cfg: p.cfg, Tools: p.tools, Management: with.manager, Workload: with.workload, NodeRefs: true}
}

// within is how long the control plane has to become whole after a change of its number of servers.
func (p ControlPlane) within() time.Duration {
	return p.cfg.ControlPlaneTimeout.D() + p.cfg.NodesTimeout.D()
}

// state is how far the control plane is.
type state struct {
	lacks   []string // what is missing until it is whole
	servers []string // that there are
	// joining are those of them that do not have their part yet, and whose Machines are not older than a run waits for
	// them: one that was interrupted may have asked for them.
	joining []string
	// repair is what to do about members of etcd that are stopped; empty: none is.
	repair string
}

// look says what is missing until the control plane is whole with a number of servers: that many Machines, each a
// Ready node and a voting, healthy member of etcd, and no other member.
func (p ControlPlane) look(ctx context.Context, with clusters, reader *rollout.Reader, replicas int) (state, error) {
	is, err := reader.Read(ctx)
	if err != nil {
		return state{}, err
	}
	machines := capi.ControlPlaneMachines(is.Machines)
	now := state{servers: serversOf(machines)}
	if is.Replicas != replicas {
		now.lacks = append(now.lacks, fmt.Sprintf("the TalosControlPlane asks for %d servers instead of %d", is.Replicas,
			replicas))
	}
	now.lacks = append(now.lacks, leaving(ctx, with.workload, machines)...)
	young := p.young(machines)
	if now.lacks = append(now.lacks, is.Missing(p.cfg.NetworkCIDR)...); len(now.lacks) > 0 {
		now.joining = without(young, readyNodes(is.Nodes))
		return now, nil
	}
	etcd, err := etcdview.Ask(ctx, p.cfg, p.tools, with.manager, "")
	if err != nil {
		return state{}, err
	}
	now.repair = etcd.Repair(p.tools.Command)
	if differs := etcd.Differs(now.servers); differs != "" {
		now.lacks, now.joining = append(now.lacks, differs), without(young, etcd.Healthy())
	}
	return now, nil
}

// young are the servers of the Machines that are no older than a run waits for them.
func (p ControlPlane) young(machines []unstructured.Unstructured) []string {
	return serversOf(slices.DeleteFunc(slices.Clone(machines), func(m unstructured.Unstructured) bool {
		return m.GetDeletionTimestamp() != nil || time.Since(m.GetCreationTimestamp().Time) > p.within()
	}))
}

// readyNodes are the names of the nodes that are Ready.
func readyNodes(nodes []corev1.Node) (names []string) {
	for i := range nodes {
		if ready, _ := situation.NodeReady(&nodes[i]); ready {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// awaitWhole waits until the control plane is whole with a number of servers, and returns their names. A server type
// that is out of stock is handled as in a bootstrap.
func (p ControlPlane) awaitWhole(ctx context.Context, say func(string, ...any), with clusters, replicas int) (
	servers []string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	reader := p.reader(with)
	reader.Balance = say
	stock := stockout.Watch{Cfg: p.cfg, Tools: p.tools, Sources: p.sources, Say: say}
	w := wait.Wait{What: fmt.Sprintf("%d control plane servers", replicas),
		Within: p.within(), Changes: reader.Changes(watching),
		Explain: p.observer.Obstacles(with.manager, situation.WatchedOf(p.cfg))}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		now, err := p.look(ctx, with, reader, replicas)
		servers = now.servers
		if err != nil || len(now.lacks) == 0 {
			return "", err
		}
		_, out, err := stock.Check(ctx, with.manager)
		return wait.Sentences(append(now.lacks, out)...), err
	})
	return servers, err
}
