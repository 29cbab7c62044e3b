package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// ControlPlane changes the number of control plane servers of a cluster.
type ControlPlane struct{ base }

// NewControlPlane makes no request.
func NewControlPlane(cfg config.Config, tools platform.Tools) ControlPlane {
	return ControlPlane{newBase(cfg, tools)}
}

// Examine implements Group.
func (p ControlPlane) Examine(ctx context.Context, say flow.Say, to int) (Change, error) {
	change, _, err := p.examine(ctx, say, to)
	return change, err
}

func refusedControlPlane(format string, args ...any) error {
	return &RefusedError{ControlPlaneGroup, fmt.Sprintf(format, args...)}
}

func (p ControlPlane) examine(ctx context.Context, say flow.Say, to int) (Change, clusters, error) {
	c := Change{Group: ControlPlaneGroup, To: to}
	with, where, err := open(ctx, p.cfg, p.tools, p.sources, say)
	if err != nil {
		return c, clusters{}, err
	}
	c.Manager = where
	tcp, err := capi.Get(ctx, with.manager, p.cfg.Namespace, capi.TalosControlPlaneKind, p.cfg.ControlPlaneName())
	if err != nil {
		return c, clusters{}, err
	}
	if !capi.Truth(tcp, "status", "initialized") {
		return c, clusters{}, refusedControlPlane("its etcd was not started yet: set controlPlaneReplicas: %d in "+
			"bootstrap.yaml and run %s", to, p.tools.Command("bootstrap"))
	}
	c.From = int(capi.Number(tcp, "spec", "replicas"))
	if err := p.describe(ctx, with.manager, tcp, &c); err != nil {
		return c, clusters{}, err
	}
	if c.From != c.To {
		if c.Flaw, err = rollout.Flaw(ctx, p.cfg, p.tools, with.manager); err != nil {
			return c, clusters{}, err
		}
	}
	return c, with, p.refuse(ctx, with, tcp, c)
}

// describe fills in what the change concerns: the servers, their type, and what it costs.
func (p ControlPlane) describe(ctx context.Context, manager *kube.Cluster, tcp *unstructured.Unstructured,
	c *Change) error {
	machines, err := capi.List(ctx, manager, p.cfg.Namespace, capi.MachineKind, p.cfg.ClusterName)
	if err != nil {
		return err
	}
	c.Servers = capi.ServersOf(capi.ControlPlaneMachines(machines))
	template, err := capi.Get(ctx, manager, p.cfg.Namespace, capi.MachineTemplateKind,
		capi.Text(tcp, "spec", "infrastructureTemplate", "name"))
	if err != nil {
		return err
	}
	placement, err := situation.LivePlacement(ctx, p.cfg, manager)
	if err != nil {
		return err
	}
	c.ServerType = capi.Text(template, "spec", "template", "spec", "type")
	c.Location = strings.Join(placement.Locations, ", ")
	if len(placement.Locations) == 0 || c.To == c.From {
		return nil
	}
	count := max(c.To-c.From, c.From-c.To)
	c.Monthly, err = hetzner.Quote(ctx, p.tools.Hetzner, []hetzner.Order{
		{Kind: hetzner.KindServer, Count: count, Type: c.ServerType, Location: placement.Locations[0]},
		{Kind: hetzner.KindPrimaryIP, Count: count, Type: "ipv4", Location: placement.Locations[0]},
	})
	if err != nil {
		return fmt.Errorf("ask Hetzner for the price of a server: %w", err)
	}
	return nil
}

// Run implements Group. One server at a time: the next one follows when each server is a Ready node and a voting,
// healthy member of etcd, and no other member is in it.
func (p ControlPlane) Run(ctx context.Context, say flow.Say, to int) ([]Step, error) {
	change, with, err := p.examine(ctx, say, to)
	if err != nil {
		return nil, err
	}
	say("%s manages cluster %s; %s", change.Manager, p.cfg.ClusterName, change)
	before, err := p.awaitWhole(ctx, say, with, change.From)
	if err != nil {
		return nil, err
	}
	steps := []Step{}
	for replicas := change.From; replicas != to; {
		next := replicas + 1
		if to < replicas {
			next = replicas - 1
			if err := p.drainable(ctx, with.workload, before); err != nil {
				return steps, fmt.Errorf("with %d servers, after %d steps: %w", replicas, len(steps), err)
			}
		}
		began := time.Now()
		if err := setReplicas(ctx, p.cfg, say, with.manager, capi.TalosControlPlaneKind, p.cfg.ControlPlaneName(), replicas,
			next); err != nil {
			return steps, err
		}
		now, err := p.awaitWhole(ctx, say, with, next)
		if err != nil {
			return steps, fmt.Errorf("%w\nthe TalosControlPlane asks for %d servers now, and %s completes it", err, next,
				p.tools.Command("scale", ControlPlaneGroup, fmt.Sprint(to)))
		}
		step := Step{Group: ControlPlaneGroup, Replicas: next, Added: without(now, before), Deleted: without(before, now),
			Took: time.Since(began)}
		say("%s", step)
		steps, before, replicas = append(steps, step), now, next
	}
	_, err = talosconfig.Refresh(ctx, p.cfg, p.tools, p.observer, say, with.manager)
	return steps, err
}

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
		return refusedControlPlane("%s", rollout.Undrainable(budgets))
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
	now := state{servers: capi.ServersOf(machines)}
	if is.Replicas != replicas {
		now.lacks = append(now.lacks, fmt.Sprintf("the TalosControlPlane asks for %d servers instead of %d", is.Replicas,
			replicas))
	}
	now.lacks = append(now.lacks, rollout.Leaving(ctx, with.workload, machines)...)
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
	return capi.ServersOf(slices.DeleteFunc(slices.Clone(machines), func(m unstructured.Unstructured) bool {
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
