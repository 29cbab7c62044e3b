// Package planning predicts what a run of the bootstrap does to a cluster that exists, and what it costs.
package planning

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Bootstrap is the bootstrap of a cluster, with the files that it is made from.
type Bootstrap struct {
	Plan    *steps.Plan
	Cfg     config.Config
	Tools   platform.Tools
	Sources render.Sources
}

// New plans the bootstrap of a valid configuration. Its error is about the operator's files.
func New(cfg config.Config, tools platform.Tools) (Bootstrap, error) {
	plan, err := steps.New(cfg, tools)
	if err != nil {
		return Bootstrap{}, err
	}
	sources, err := render.Read(render.VariablesOf(cfg), tools.Overrides)
	return Bootstrap{Plan: plan, Cfg: cfg, Tools: tools.WithDefaults(), Sources: sources}, err
}

// Explain says what a change of what a step is made from is, down to the field of the file that was edited.
func (b Bootstrap) Explain(c flow.Change) []changes.Difference {
	return changes.Explain(b.Tools, b.Sources, c)
}

// Consequences says what a run that would do this does to the cluster that exists, as the steps apply and workers will
// report it. There are none where the run applies nothing, and where there is no cluster yet. It changes nothing.
func (b Bootstrap) Consequences(ctx context.Context, foreseen []flow.Prediction) ([]changes.Consequence, error) {
	would := wouldRun(foreseen)
	if !would[b.Plan.Cluster.Name()] && !would[b.Plan.Workers.Name()] {
		return nil, nil
	}
	return wait.PromptlyFrom(ctx, silent, func(ctx context.Context) ([]changes.Consequence, error) {
		manager, self, err := b.manager(ctx)
		if err != nil || manager == nil {
			return nil, err
		}
		var all []changes.Consequence
		if would[b.Plan.Cluster.Name()] && !self {
			if all, err = b.applyConsequences(ctx, manager); err != nil {
				return nil, err
			}
		}
		_, ofPools, err := b.poolConsequences(ctx, manager)
		return append(all, ofPools...), err
	})
}

// silent is said where the look at a cluster that exists takes too long.
const silent = "the management cluster or Hetzner has not answered"

// applyConsequences says what applying the manifests does.
func (b Bootstrap) applyConsequences(ctx context.Context, manager *kube.Cluster) ([]changes.Consequence, error) {
	r, err := changes.RenderForCluster(ctx, b.Cfg, b.Tools, b.Sources, manager)
	if err != nil {
		return nil, err
	}
	return changes.ConsequencesInCluster(ctx, b.Cfg, b.Tools, manager, r)
}

// poolConsequences says what applying the worker pools does, and with which objects. A run that applies the manifests
// applies these afterwards.
func (b Bootstrap) poolConsequences(ctx context.Context, manager *kube.Cluster) ([]*unstructured.Unstructured,
	[]changes.Consequence, error) {
	deployments, templates, err := pools.Live(ctx, manager, b.Cfg.Namespace, b.Cfg.ClusterName)
	if kube.Absent(err) {
		return nil, nil, nil // Cluster API is not installed there yet
	}
	if err != nil || len(b.Cfg.Workers)+len(deployments)+len(templates) == 0 {
		return nil, nil, err
	}
	objects, err := pools.Render(ctx, b.Cfg, b.Tools, b.Sources, manager)
	if err != nil {
		return nil, nil, err
	}
	all, err := changes.ConsequencesOfPools(ctx, b.Cfg, b.Tools, manager, objects)
	return objects, all, err
}

// manager is the cluster that manages this one; nil: there is none yet. self tells that it is the cluster itself.
func (b Bootstrap) manager(ctx context.Context) (manager *kube.Cluster, self bool, err error) {
	if manager, err = situation.SelfManaged(ctx, b.Cfg, b.Tools, b.Sources); err != nil || manager != nil {
		return manager, manager != nil, err
	}
	manager, err = connect.Cluster(b.Tools, platform.ManagementKubeconfig)
	if !errors.Is(err, fs.ErrNotExist) {
		return manager, false, err
	}
	if !b.Tools.ManagementGiven() {
		return nil, false, nil
	}
	data, err := b.Tools.Existing(ctx, b.Cfg.ManagementName()) // the one that the run connects to
	if err != nil {
		return nil, false, err
	}
	if manager, err = connect.Management(b.Tools, data); err != nil {
		return nil, false, err
	}
	if object, err := connect.FindCluster(ctx, b.Cfg, manager); err != nil || object == nil {
		return nil, false, err
	}
	return manager, false, nil
}

// Seen is what of the cluster known problems depend on, as config names it; none where it cannot be asked.
func (b Bootstrap) Seen(ctx context.Context) []string {
	seen, _ := wait.Promptly(ctx, func(ctx context.Context) ([]string, error) {
		manager, _, err := b.manager(ctx)
		if err != nil || manager == nil {
			return nil, err
		}
		placement, err := situation.LivePlacement(ctx, b.Cfg, manager)
		return placement.Seen(), err
	})
	return seen
}

// Bill says what a run that would do this, with these consequences, makes at Hetzner, and what that costs a month. It
// counts what the manifests ask for and leaves out what the cluster has, and keeps; it changes nothing. Servers that
// take the place of others are not in it: see Consequence.
func (b Bootstrap) Bill(ctx context.Context, foreseen []flow.Prediction,
	expected []changes.Consequence) (orders.Bill, error) {
	would, p := wouldRun(foreseen), b.Plan
	servers := would[p.Cluster.Name()] || would[p.ControlPlane.Name()] || would[p.Workers.Name()] && len(b.Cfg.Workers) > 0
	more := orders.Extra{Firewall: would[p.Firewall.Name()], Image: would[p.Image.Name()],
		Reservation: would[p.Reservation.Name()], Leave: leaving(expected)}
	if !servers && !would[p.Endpoint.Name()] && !more.Image && !more.Firewall {
		return orders.Bill{New: []hetzner.Order{}, Notes: []string{}}, nil
	}
	return wait.Promptly(ctx, func(ctx context.Context) (bill orders.Bill, err error) {
		var wanted []hetzner.Order
		if servers || would[p.Endpoint.Name()] {
			if wanted, err = orders.Wanted(ctx, b.Cfg, b.Tools, b.Sources); err != nil {
				return bill, err
			}
		}
		if servers && len(b.Cfg.Workers) > 0 {
			objects, err := pools.Render(ctx, b.Cfg, b.Tools, b.Sources, nil)
			if err != nil {
				return bill, err
			}
			wanted = append(wanted, orders.Of(objects, b.Cfg.PreferredLocation())...)
		}
		if !servers {
			wanted = orders.OfEndpoint(wanted)
		}
		return orders.Compute(ctx, b.Cfg, b.Tools, wanted, more)
	})
}

// wouldRun names the steps that would run, or may.
func wouldRun(foreseen []flow.Prediction) map[string]bool {
	would := map[string]bool{}
	for _, f := range foreseen {
		would[f.Name] = f.Action == flow.ActionRun || f.Action == flow.ActionMayRun
	}
	return would
}

// leaving is how many servers are deleted without a replacement.
func leaving(all []changes.Consequence) (n int) {
	for _, c := range all {
		if slices.Contains([]changes.Effect{changes.EffectRemoves, changes.EffectDeletes}, c.Effect) {
			n += c.Count
		}
	}
	return n
}
