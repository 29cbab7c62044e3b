package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
)

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
		return p.refused("a server that goes is drained first, and that would wait without an end for %s: scale its Pods up "+
			"or change it, then run again", rollout.BudgetSentence(budgets))
	default:
		c.Notes = append(c.Notes, fmt.Sprintf("a drain of %s would wait without an end for %s: scale its Pods up or change "+
			"it before, unless Cluster API chooses other servers", strings.Join(blocked, ", "), rollout.BudgetSentence(budgets)))
	}
	return nil
}
