package scale

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// ControlPlane changes the number of control plane servers of a cluster.
type ControlPlane struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

// NewControlPlane makes no request.
func NewControlPlane(cfg config.Config, tools platform.Tools) ControlPlane {
	tools = tools.WithDefaults()
	sources := render.ReadOrEmpty(cfg, tools.Overrides)
	return ControlPlane{cfg: cfg, tools: tools, sources: sources,
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}}
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
	c.Servers = serversOf(capi.ControlPlaneMachines(machines))
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
