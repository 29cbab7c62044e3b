// Package scale changes the number of servers of a group of a cluster that runs: its control plane, one server after
// another while etcd keeps its quorum, or a worker pool.
package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// ControlPlaneGroup is the control plane as a group of servers; PoolGroup precedes the name of a worker pool.
const (
	ControlPlaneGroup = "control-plane"
	PoolGroup         = "workers/"
)

// Group is a group of servers that can be scaled. The caller must have the lock of the journal, except for Examine.
type Group interface {
	// Examine says what a change to a number of servers does, or why it is refused (RefusedError). It changes nothing.
	Examine(ctx context.Context, say flow.Say, to int) (Change, error)
	// Run changes the number of servers. A run that was cut off is completed by the same call.
	Run(ctx context.Context, say flow.Say, to int) ([]Step, error)
}

// base is what every group is scaled with.
type base struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

func newBase(cfg config.Config, tools platform.Tools) base {
	tools = tools.WithDefaults()
	sources := render.ReadOrEmpty(cfg, tools.Overrides)
	return base{cfg: cfg, tools: tools, sources: sources,
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}}
}

// Change is what scaling a group does.
type Change struct {
	Group      string        `json:"group"` // "control-plane", "workers/general"
	From       int           `json:"from"`  // servers that its object in the cluster asks for now
	To         int           `json:"to"`
	Manager    string        `json:"manager"` // the cluster that manages this one, for people
	ServerType string        `json:"serverType"`
	Location   string        `json:"location"`
	Monthly    hetzner.Price `json:"monthly"` // more (or, when servers go, less) a month
	Servers    []string      `json:"servers"` // that exist now
	// Deployments are the MachineDeployments of a worker pool, one for each of its placement groups.
	Deployments []Deployment `json:"deployments,omitempty"`
	Notes       []string     `json:"notes,omitempty"` // what to know before
	// Flaw is why it may never end with the versions that are installed: it is done with consent only. Empty: nothing is
	// known.
	Flaw string `json:"flaw,omitempty"`
}

// Deployment is what scaling a worker pool does to one of its MachineDeployments.
type Deployment struct {
	Name string `json:"name"`
	From int    `json:"from"`
	To   int    `json:"to"` // of one that is not needed any more: 0, and it is deleted

	exists, needed bool
}

// Removes is how many servers are deleted.
func (c Change) Removes() int {
	if len(c.Deployments) == 0 {
		return max(0, c.From-c.To)
	}
	n := 0
	for _, d := range c.Deployments {
		n += max(0, d.From-d.To)
	}
	return n
}

// Adds is how many servers are created.
func (c Change) Adds() int { return c.To - c.From + c.Removes() }

// Called is what the group is called in a sentence.
func (c Change) Called() string { return called(c.Group) }

func called(group string) string {
	if pool, is := strings.CutPrefix(group, PoolGroup); is {
		return "worker pool " + pool
	}
	return "the control plane"
}

// String says what is going to happen.
func (c Change) String() string {
	how, which := ", one after another", ", the oldest first"
	if c.Group != ControlPlaneGroup {
		how, which = "", ", which ones is Cluster API's choice"
	}
	count := fmt.Sprintf("%d → %d", c.From, c.To)
	var parts []string
	if n := c.Adds(); n > 0 {
		parts = append(parts, fmt.Sprintf("adds %s of type %s in %s to %s%s", servers(n), c.ServerType, c.Location,
			c.Called(), how))
	}
	if n := c.Removes(); n > 0 {
		parts = append(parts, fmt.Sprintf("deletes %d of the servers %s of %s%s%s", n, strings.Join(c.Servers, ", "),
			c.Called(), how, which))
	}
	switch {
	case len(parts) == 0:
		return fmt.Sprintf("%s has %s, and keeps them", c.Called(), servers(c.From))
	case c.To > c.From:
		count += fmt.Sprintf(", %s a month more", c.Monthly)
	case c.To < c.From:
		count += fmt.Sprintf(", %s a month less", c.Monthly)
	}
	if len(c.Deployments) > 1 {
		var each []string
		for _, d := range c.Deployments {
			each = append(each, d.String())
		}
		count += "; " + strings.Join(each, ", ")
	}
	return strings.Join(parts, " and ") + ": " + count
}

func (d Deployment) String() string {
	switch {
	case !d.needed:
		return fmt.Sprintf("MachineDeployment %s is deleted with %s", d.Name, servers(d.From))
	case !d.exists:
		return fmt.Sprintf("MachineDeployment %s is created with %s", d.Name, servers(d.To))
	}
	return fmt.Sprintf("MachineDeployment %s %d → %d", d.Name, d.From, d.To)
}

func servers(n int) string {
	if n == 1 {
		return "1 server"
	}
	return fmt.Sprintf("%d servers", n)
}

// Step is a number of servers that the group has reached.
type Step struct {
	Group    string        `json:"group"`
	Replicas int           `json:"replicas"` // of the group, after it
	Added    []string      `json:"added"`
	Deleted  []string      `json:"deleted"`
	Took     time.Duration `json:"tookNs"`
}

// String is "the control plane has 4 servers after 36s: deleted k8s-control-plane-3b431-nhkqb".
func (s Step) String() string {
	var what []string
	if len(s.Added) > 0 {
		what = append(what, "added "+strings.Join(s.Added, ", "))
	}
	if len(s.Deleted) > 0 {
		what = append(what, "deleted "+strings.Join(s.Deleted, ", "))
	}
	return fmt.Sprintf("%s has %s after %s: %s", called(s.Group), servers(s.Replicas), s.Took.Round(time.Second),
		strings.Join(what, ", "))
}

// RefusedError says why a group is not scaled. Nothing was changed.
type RefusedError struct{ Group, Why string }

// Error implements error.
func (e *RefusedError) Error() string { return called(e.Group) + " is not scaled: " + e.Why }

// clusters are the two that a change works with.
type clusters struct{ manager, workload *kube.Cluster }

// open connects to the cluster that manages this one, which it describes, and to this one.
func open(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say) (
	with clusters, where string, err error) {
	if with.manager, where, err = situation.ManagingCluster(ctx, cfg, tools, sources, say); err != nil {
		return clusters{}, "", err
	}
	if with.workload, err = connect.Cluster(tools, platform.Kubeconfig); err != nil {
		return clusters{}, "", fmt.Errorf("cluster %s: %w", cfg.ClusterName, err)
	}
	return with, where, nil
}

// without are the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// setReplicas changes an object from one number of servers to the next, unless another client has changed that number.
// In a cluster that manages itself the API servers and the webhooks come and go meanwhile: it waits for them, and
// writes again where a controller has changed the object in between.
func setReplicas(ctx context.Context, cfg config.Config, say flow.Say, manager *kube.Cluster,
	kind schema.GroupVersionKind, name string, from, to int) error {
	say("%s %s: spec.replicas %d → %d", kind.Kind, name, from, to)
	return apply.Change(ctx, cfg, say, fmt.Sprintf("spec.replicas of %s %s", kind.Kind, name),
		func(ctx context.Context) (string, error) {
			return "", tryReplicas(ctx, manager, cfg.Namespace, kind, name, from, to)
		})
}

func tryReplicas(ctx context.Context, manager *kube.Cluster, namespace string, kind schema.GroupVersionKind,
	name string, from, to int) error {
	o, err := capi.Get(ctx, manager, namespace, kind, name)
	if err != nil {
		return err
	}
	switch is := int(capi.Number(o, "spec", "replicas")); is {
	case to: // the answer to an earlier write was lost
		return nil
	case from:
	default:
		return fmt.Errorf("%s asks for %d servers instead of the %d that this run left: another client changes it; "+
			"run again when that is done", kube.Describe(o), is, from)
	}
	changed := o.DeepCopy()
	if err := unstructured.SetNestedField(changed.Object, int64(to), "spec", "replicas"); err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})
	if err := manager.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("set spec.replicas of %s to %d: %w", kube.Describe(o), to, err)
	}
	return nil
}
