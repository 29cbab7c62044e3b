// Package scale changes the number of control plane servers, one after another, while etcd keeps its quorum.
package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/talosconfig"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// ControlPlane changes the number of control plane servers of a cluster. The caller must have the lock of the journal,
// except for Examine.
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

// Change is what scaling a control plane does.
type Change struct {
	From       int           `json:"from"` // servers that the TalosControlPlane asks for now
	To         int           `json:"to"`
	Manager    string        `json:"manager"` // the cluster that manages this one, for people
	ServerType string        `json:"serverType"`
	Location   string        `json:"location"`
	Monthly    hetzner.Price `json:"monthly"` // more (or, when servers go, less) a month
	Servers    []string      `json:"servers"` // that exist now
}

// Removes is how many servers are deleted.
func (c Change) Removes() int { return max(0, c.From-c.To) }

// String says what is going to happen.
func (c Change) String() string {
	switch {
	case c.To == c.From:
		return fmt.Sprintf("the control plane has %d servers, and keeps them", c.From)
	case c.To > c.From:
		return fmt.Sprintf("adds %d control plane servers of type %s in %s, one after another: %d → %d, %s a month more",
			c.To-c.From, c.ServerType, c.Location, c.From, c.To, c.Monthly)
	}
	return fmt.Sprintf("deletes %d of the control plane servers %s, one after another, the oldest first: %d → %d, %s a "+
		"month less", c.From-c.To, strings.Join(c.Servers, ", "), c.From, c.To, c.Monthly)
}

// Step is one server that was added or deleted.
type Step struct {
	Replicas int           `json:"replicas"` // of the control plane, after it
	Added    []string      `json:"added"`
	Deleted  []string      `json:"deleted"`
	Took     time.Duration `json:"tookNs"`
}

// String is "4 control plane servers after 36s: deleted k8s-control-plane-3b431-nhkqb".
func (s Step) String() string {
	var what []string
	if len(s.Added) > 0 {
		what = append(what, "added "+strings.Join(s.Added, ", "))
	}
	if len(s.Deleted) > 0 {
		what = append(what, "deleted "+strings.Join(s.Deleted, ", "))
	}
	return fmt.Sprintf("%d control plane servers after %s: %s", s.Replicas, s.Took.Round(time.Second),
		strings.Join(what, ", "))
}

// RefusedError says why a control plane is not scaled. Nothing was changed.
type RefusedError struct{ Why string }

// Error implements error.
func (e *RefusedError) Error() string { return "the control plane is not scaled: " + e.Why }

// clusters are the two that a change works with.
type clusters struct{ manager, workload *kube.Cluster }

// Examine says what a change to a number of servers does, or why it is refused (RefusedError). It changes nothing.
func (p ControlPlane) Examine(ctx context.Context, say flow.Say, to int) (Change, error) {
	change, _, err := p.examine(ctx, say, to)
	return change, err
}

func (p ControlPlane) examine(ctx context.Context, say flow.Say, to int) (Change, clusters, error) {
	c := Change{To: to}
	manager, where, err := situation.ManagingCluster(ctx, p.cfg, p.tools, p.sources, say)
	if err != nil {
		return c, clusters{}, err
	}
	c.Manager = where
	tcp, err := capi.Get(ctx, manager, capi.TalosControlPlaneKind, p.cfg.ControlPlaneName())
	if err != nil {
		return c, clusters{}, err
	}
	if !capi.Truth(tcp, "status", "initialized") {
		return c, clusters{}, &RefusedError{fmt.Sprintf("its etcd was not started yet: set controlPlaneReplicas: %d in "+
			"bootstrap.yaml and run %s", to, p.tools.Command("bootstrap"))}
	}
	workload, err := connect.Cluster(p.tools, platform.Kubeconfig)
	if err != nil {
		return c, clusters{}, fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	with := clusters{manager, workload}
	c.From = int(capi.Number(tcp, "spec", "replicas"))
	if err := p.describe(ctx, manager, tcp, &c); err != nil {
		return c, clusters{}, err
	}
	return c, with, p.refuse(ctx, with, tcp, c)
}

// describe fills in what the change concerns: the servers, their type, and what it costs.
func (p ControlPlane) describe(ctx context.Context, manager *kube.Cluster, tcp *unstructured.Unstructured,
	c *Change) error {
	machines, err := capi.List(ctx, manager, capi.MachineKind, p.cfg.ClusterName)
	if err != nil {
		return err
	}
	c.Servers = serversOf(capi.ControlPlaneMachines(machines))
	template, err := capi.Get(ctx, manager, capi.MachineTemplateKind,
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

// serversOf are the names of the Machines' servers, which are those of their nodes and members of etcd.
func serversOf(machines []unstructured.Unstructured) []string {
	names := []string{}
	for _, m := range machines {
		names = append(names, capi.Text(&m, "spec", "infrastructureRef", "name"))
	}
	slices.Sort(names)
	return names
}

// Run changes the number of servers. One at a time: the next one follows when each server is a Ready node and a voting,
// healthy member of etcd, and no other member is in it. A run that was cut off is completed by the same call.
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
		if err := p.setReplicas(ctx, say, with.manager, replicas, next); err != nil {
			return steps, err
		}
		now, err := p.awaitWhole(ctx, say, with, next)
		if err != nil {
			return steps, fmt.Errorf("%w\nthe TalosControlPlane asks for %d servers now, and %s completes it", err, next,
				p.tools.Command("scale", "control-plane", fmt.Sprint(to)))
		}
		step := Step{Replicas: next, Added: without(now, before), Deleted: without(before, now), Took: time.Since(began)}
		say("%s", step)
		steps, before, replicas = append(steps, step), now, next
	}
	_, err = talosconfig.Refresh(ctx, p.cfg, p.tools, p.observer, say, with.manager)
	return steps, err
}

// without are the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// setReplicas changes the TalosControlPlane from one number of servers to the next, unless another client has changed
// that number. In a cluster that manages itself the API servers and the webhooks come and go meanwhile: it waits for them,
// and writes again where a controller has changed the object in between.
func (p ControlPlane) setReplicas(ctx context.Context, say flow.Say, manager *kube.Cluster, from, to int) error {
	name := p.cfg.ControlPlaneName()
	say("TalosControlPlane %s: spec.replicas %d → %d", name, from, to)
	return wait.Wait{What: "the API server and its webhooks to take spec.replicas of TalosControlPlane " + name,
		Within: p.cfg.LoadBalancerTimeout.D()}.Until(ctx, say, func(ctx context.Context) (string, error) {
		err := p.tryReplicas(ctx, manager, name, from, to)
		if err != nil && !kube.Unwell(err) && !apierrors.IsConflict(err) {
			return "", wait.Final(err)
		}
		return "", err
	})
}

func (p ControlPlane) tryReplicas(ctx context.Context, manager *kube.Cluster, name string, from, to int) error {
	tcp, err := capi.Get(ctx, manager, capi.TalosControlPlaneKind, name)
	if err != nil {
		return err
	}
	switch is := int(capi.Number(tcp, "spec", "replicas")); is {
	case to: // the answer to an earlier write was lost
		return nil
	case from:
	default:
		return fmt.Errorf("%s asks for %d servers instead of the %d that this run left: another client changes it; "+
			"run again when that is done", kube.Describe(tcp), is, from)
	}
	changed := tcp.DeepCopy()
	if err := unstructured.SetNestedField(changed.Object, int64(to), "spec", "replicas"); err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
	if err := manager.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("set spec.replicas of %s to %d: %w", kube.Describe(tcp), to, err)
	}
	return nil
}
