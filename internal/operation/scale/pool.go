package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// Pool changes the number of servers of a worker pool. It changes the number alone: what else the configuration says of
// the pool is applied by the step workers.
type Pool struct {
	base
	name string
}

// NewPool makes no request.
func NewPool(cfg config.Config, tools platform.Tools, name string) Pool {
	return Pool{newBase(cfg, tools), name}
}

func (p Pool) group() string { return PoolGroup + p.name }

func (p Pool) refused(format string, args ...any) error {
	return &RefusedError{p.group(), fmt.Sprintf(format, args...)}
}

// wanted are the parts that the pool is divided into with a number of servers, by the names of their
// MachineDeployments.
func (p Pool) wanted(replicas int) (names []string, replicasOf map[string]int, placementGroups []string) {
	replicasOf = map[string]int{}
	for _, g := range (config.WorkerPool{Name: p.name, Replicas: replicas}).Groups() {
		name := p.cfg.ClusterName + "-" + g.Name
		names, placementGroups, replicasOf[name] = append(names, name), append(placementGroups, g.Name), g.Replicas
	}
	return names, replicasOf, placementGroups
}

// poolState is a pool as the cluster that manages this one has it.
type poolState struct {
	deployments []unstructured.Unstructured // those that are not being deleted, in the order of their groups
	template    *unstructured.Unstructured  // HCloudMachineTemplate of the first
}

// look reads the pool. That the cluster does not have it is a usage error.
func (p Pool) look(ctx context.Context, manager *kube.Cluster) (state poolState, err error) {
	all, _, err := pools.Live(ctx, manager, p.cfg.Namespace, p.cfg.ClusterName)
	if err != nil {
		return state, err
	}
	var names []string
	for _, d := range all {
		name := d.GetLabels()[capi.WorkerPoolLabel]
		if d.GetDeletionTimestamp() != nil {
			continue
		}
		if names = append(names, name); name == p.name {
			state.deployments = append(state.deployments, d)
		}
	}
	if len(state.deployments) == 0 {
		return state, p.unknown(slices.Compact(slices.Sorted(slices.Values(names))))
	}
	slices.SortFunc(state.deployments, func(a, b unstructured.Unstructured) int {
		return 1000*(len(a.GetName())-len(b.GetName())) + strings.Compare(a.GetName(), b.GetName())
	})
	state.template, err = capi.Get(ctx, manager, p.cfg.Namespace, capi.MachineTemplateKind,
		orders.Template(&state.deployments[0]))
	return state, err
}

// unknown is the error of a pool that the cluster does not have.
func (p Pool) unknown(known []string) error {
	if slices.ContainsFunc(p.cfg.Workers, func(w config.WorkerPool) bool { return w.Name == p.name }) {
		return usage.Errorf("cluster %s does not have worker pool %s yet: %s creates it as it is configured",
			p.cfg.ClusterName, p.name, p.tools.Command("bootstrap"))
	}
	if len(known) == 0 {
		return usage.Errorf("cluster %s has no worker pool: configure one with workers in bootstrap.yaml", p.cfg.ClusterName)
	}
	return usage.Errorf("cluster %s has no worker pool %q, but %s%s", p.cfg.ClusterName, p.name, strings.Join(known, ", "),
		usage.DidYouMean(PoolGroup, p.name, known))
}

// Examine implements Group.
func (p Pool) Examine(ctx context.Context, say flow.Say, to int) (Change, error) {
	change, _, err := p.examine(ctx, say, to)
	return change, err
}

func (p Pool) examine(ctx context.Context, say flow.Say, to int) (Change, clusters, error) {
	c := Change{Group: p.group(), To: to}
	with, where, err := open(ctx, p.cfg, p.tools, p.sources, say)
	if err != nil {
		return c, clusters{}, err
	}
	c.Manager = where
	state, err := p.look(ctx, with.manager)
	if err != nil {
		return c, clusters{}, err
	}
	c.Deployments = p.divide(state, to)
	for _, d := range c.Deployments {
		c.From += d.From
	}
	if err := p.describe(ctx, with.manager, state, &c); err != nil {
		return c, clusters{}, err
	}
	return c, with, p.refuse(ctx, with, state, &c)
}

// divide says what becomes of each MachineDeployment.
func (p Pool) divide(state poolState, to int) (all []Deployment) {
	names, replicas, _ := p.wanted(to)
	for i := range state.deployments {
		d := &state.deployments[i]
		name := d.GetName()
		all = append(all, Deployment{Name: name, From: orders.Replicas(d), To: replicas[name], exists: true,
			needed: slices.Contains(names, name)})
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(d Deployment) bool { return d.Name == name }) {
			all = append(all, Deployment{Name: name, To: replicas[name], needed: true})
		}
	}
	return all
}

// describe fills in what the change concerns: the servers, their type, and what it costs.
func (p Pool) describe(ctx context.Context, manager *kube.Cluster, state poolState, c *Change) error {
	machines, err := capi.List(ctx, manager, p.cfg.Namespace, capi.MachineKind, p.cfg.ClusterName)
	if err != nil {
		return err
	}
	c.Servers = capi.ServersOf(slices.DeleteFunc(machines, func(m unstructured.Unstructured) bool {
		return m.GetLabels()[capi.WorkerPoolLabel] != p.name
	}))
	c.ServerType = capi.Text(state.template, "spec", "template", "spec", "type")
	c.Location = capi.Text(&state.deployments[0], "spec", "template", "spec", "failureDomain")
	if c.Location == "" || c.To == c.From {
		return nil
	}
	priced := orders.Servers([]*unstructured.Unstructured{state.template}, state.template.GetName(),
		max(c.To-c.From, c.From-c.To), c.Location)
	if c.Monthly, err = hetzner.Quote(ctx, p.tools.Hetzner, priced); err != nil {
		return fmt.Errorf("ask Hetzner for the price of a server: %w", err)
	}
	return nil
}

// Run implements Group. All servers are created, or drained and deleted, at the same time.
func (p Pool) Run(ctx context.Context, say flow.Say, to int) ([]Step, error) {
	change, with, err := p.examine(ctx, say, to)
	if err != nil {
		return nil, err
	}
	say("%s manages cluster %s; %s", change.Manager, p.cfg.ClusterName, change)
	again := func(err error) error {
		return fmt.Errorf("%w\n%s completes it", err, p.tools.Command("scale", p.group(), fmt.Sprint(to)))
	}
	began := time.Now()
	if err := p.change(ctx, say, with.manager, change); err != nil {
		return nil, again(err)
	}
	now, err := p.awaitWhole(ctx, say, with, to)
	if err != nil {
		return nil, again(err)
	}
	if err := p.tidy(ctx, say, with.manager, to); err != nil {
		return nil, again(err)
	}
	step := Step{Group: p.group(), Replicas: to, Added: without(now, change.Servers),
		Deleted: without(change.Servers, now), Took: time.Since(began)}
	if len(step.Added)+len(step.Deleted) == 0 {
		return []Step{}, nil
	}
	say("%s", step)
	return []Step{step}, nil
}

// refuse says why the change is not to begin: the cluster autoscaler chooses the number, the servers are being
// replaced, no server can be created, or they cannot be drained. It notes in the change what to know before.
func (p Pool) refuse(ctx context.Context, with clusters, state poolState, c *Change) error {
	for i := range state.deployments {
		d := &state.deployments[i]
		if d.GetAnnotations()[capi.AutoscalerMax] != "" {
			return p.refused("the cluster autoscaler chooses the number of its servers: change min and max of the pool in " +
				"bootstrap.yaml")
		}
		if has, made := capi.Number(d, "status", "updatedReplicas"), capi.Number(d, "status", "replicas"); has < made {
			return p.refused("its servers are being replaced, one after another (MachineDeployment %s: %d of %d are up to "+
				"date): run again when that is done (%s says how far it is)", d.GetName(), has, made, p.tools.Command("status"))
		}
	}
	if c.Adds() > 0 {
		if err := p.room(ctx, with.manager, state, c); err != nil {
			return err
		}
	}
	if n := c.Removes(); n > 0 {
		return p.drainable(ctx, with.workload, n, c)
	}
	return nil
}

// room is nil if servers can be added: Hetzner has their type in stock, and their image; what is needed for a further
// placement group can be made.
func (p Pool) room(ctx context.Context, manager *kube.Cluster, state poolState, c *Change) error {
	if err := situation.ServerPossible(ctx, p.tools, state.template); err != nil {
		return p.refused("%v", err)
	}
	kind, err := hetzner.FindServerType(ctx, p.tools.Hetzner, c.ServerType)
	if err != nil {
		return err
	}
	const another = "give the pool another serverType or location in bootstrap.yaml, add another pool, or wait"
	switch sale := kind.At(c.Location); {
	case c.Location != "" && !sale.Sold:
		return p.refused("server type %s is not sold in %s: %s", kind.Name, c.Location, another)
	case sale.Told && !sale.InStock:
		return p.refused("server type %s is out of stock in %s: %s", kind.Name, c.Location, another)
	}
	if slices.ContainsFunc(c.Deployments, func(d Deployment) bool { return !d.exists }) {
		if _, err := p.further(ctx, manager, c.To); err != nil {
			return err
		}
	}
	all, err := hetzner.TakeInventory(ctx, p.tools.Hetzner)
	if err != nil {
		return err
	}
	has := 0
	for _, r := range all.Resources {
		if r.Kind == hetzner.KindServer {
			has++
		}
	}
	c.Notes = append(c.Notes, fmt.Sprintf("clusters in the Hetzner project have %s, and get %d more: compare with the "+
		"project's Limits in Hetzner's console, which the API does not return", servers(has), c.Adds()))
	return nil
}

// drainable is nil if as many of the pool's nodes as go can be drained now. Which ones go is Cluster API's choice, so
// that budgets that block the drain of others are noted.
func (p Pool) drainable(ctx context.Context, workload *kube.Cluster, going int, c *Change) error {
	budgets, err := rollout.BlockingBudgets(ctx, workload, c.Servers)
	if err != nil {
		return p.refused("%v", err)
	}
	var blocked []string
	for _, b := range budgets {
		blocked = append(blocked, b.Nodes...)
	}
	blocked = slices.Compact(slices.Sorted(slices.Values(blocked)))
	switch {
	case len(budgets) == 0:
	case going > len(c.Servers)-len(blocked):
		return p.refused("%s", rollout.Undrainable(budgets))
	default:
		c.Notes = append(c.Notes, fmt.Sprintf("a drain of %s would wait without an end for %s: scale its Pods up or change "+
			"it before, unless Cluster API chooses other servers", strings.Join(blocked, ", "), rollout.BudgetSentence(budgets)))
	}
	return nil
}
