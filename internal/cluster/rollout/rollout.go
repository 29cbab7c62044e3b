// Package rollout reads the control plane, its Machines, nodes and servers, and says what does not agree yet, and which
// PodDisruptionBudgets do not let a node be drained.
package rollout

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// MissingTopologyLabels is a note about nodes that do not say where they stand. The cluster works without: only what
// spreads Pods over regions or zones does not see any.
func (r State) MissingTopologyLabels() string {
	var names []string
	for i := range r.Nodes {
		if l := r.Nodes[i].Labels; l[corev1.LabelTopologyRegion] == "" || l[corev1.LabelTopologyZone] == "" {
			names = append(names, r.Nodes[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("note: %s without %s or %s: known of hcloud-ccm 1.29.2, which reads a property of servers that "+
		"the Hetzner API "+
		"no longer has; a later one (see the changelog of v1.35.0) does not", strings.Join(names, ", "),
		corev1.LabelTopologyRegion, corev1.LabelTopologyZone)
}

// Leaving says which Machines are being deleted, and what their drain waits for.
func Leaving(ctx context.Context, workload *kube.Cluster, machines []unstructured.Unstructured) (lines []string) {
	var nodes []string
	for _, m := range machines {
		if m.GetDeletionTimestamp() == nil {
			continue
		}
		nodes = append(nodes, capi.ServerOf(&m))
		line := fmt.Sprintf("Machine %s is being deleted", m.GetName())
		if troubles := why.Said(&m); troubles != "" {
			line += " (" + troubles + ")"
		}
		lines = append(lines, line)
	}
	if len(nodes) == 0 {
		return nil
	}
	if budgets, err := BlockingBudgets(ctx, workload, nodes); err == nil && len(budgets) > 0 {
		lines = append(lines, "the drain waits for "+BudgetSentence(budgets))
	}
	return lines
}

// State is everything that has to agree about the nodes. How many there should be, and at which version, is asked of
// the control plane itself: the guide scales and upgrades it with kubectl.
type State struct {
	Replicas int    // of the control plane
	Version  string // of Kubernetes
	rolling  string // what its servers do not have yet
	Nodes    []corev1.Node
	Machines []unstructured.Unstructured
	Servers  []hetzner.Server // nil: Hetzner was not asked yet
	nodeRefs bool             // Machines without a node are missing, too
}

// Read asks Cluster API, the cluster itself and Hetzner. Machines whose node Cluster API does not know are missing.
func Read(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt, workload *kube.Cluster) (State, error) {
	return (&Reader{Cfg: cfg, Tools: tools, Management: mgmt, Workload: workload, NodeRefs: true}).Read(ctx)
}

// Read asks Cluster API, the cluster itself and, where it matters, Hetzner.
func (o *Reader) Read(ctx context.Context) (r State, err error) {
	tcp, err := capi.Get(ctx, o.Management, o.Cfg.Namespace, capi.TalosControlPlaneKind, o.Cfg.ControlPlaneName())
	if err != nil {
		return State{}, err
	}
	r.Replicas, r.Version = int(capi.Number(tcp, "spec", "replicas")), capi.Text(tcp, "spec", "version")
	r.rolling, r.nodeRefs = capi.Rolling(tcp), o.NodeRefs
	if r.Nodes, r.Machines, err = o.objects(ctx); err != nil {
		return State{}, err
	}
	asked := false
	if r.Servers, asked, err = o.ask(ctx, r.Missing(o.Cfg.NetworkCIDR)); err != nil || !asked {
		return r, err
	}
	return r, o.balance(ctx, r)
}

// Missing lists what does not agree yet.
func (r State) Missing(networkCIDR string) []string {
	var missing []string
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }

	if r.rolling != "" {
		add("%s", r.rolling)
	}
	machines, nodes := capi.ControlPlaneMachines(r.Machines), r.ControlPlaneNodes()
	if n := len(machines); n != r.Replicas {
		add("%d control plane Machines instead of %d", n, r.Replicas)
	}
	if len(nodes) != len(machines) {
		add("%d control plane nodes for %d Machines", len(nodes), len(machines))
	}
	if n := countServers(r.Servers, false); r.Servers != nil && n != len(machines) {
		add("%d control plane servers for %d Machines", n, len(machines))
	}
	network, err := netip.ParsePrefix(networkCIDR)
	if err != nil {
		add("networkCidr: %v", err)
	}
	servers := byProviderID(r.Servers)
	var reasons wait.Reasons
	for i := range nodes {
		if problem := situation.MismatchProblem(&nodes[i], r.Machines); problem != "" {
			reasons.Add(nodes[i].Name, problem)
			continue
		}
		for _, problem := range situation.NodeProblems(&nodes[i], servers, network, r.Version) {
			reasons.Add(nodes[i].Name, problem)
		}
	}
	missing = append(missing, reasons.Lines()...)
	if without := WithoutNodeRef(machines); r.nodeRefs && without != "" {
		missing = append(missing, without)
	}
	return missing
}

// WithoutNodeRef names the Machines whose node Cluster API does not know yet; empty: it knows all.
func WithoutNodeRef(machines []unstructured.Unstructured) string {
	var unknown []string
	for _, m := range machines {
		if capi.Text(&m, "status", "nodeRef", "name") == "" {
			unknown = append(unknown, m.GetName())
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("Cluster API has not seen the nodes of Machines %s (it looks twice a minute)",
		strings.Join(unknown, ", "))
}
