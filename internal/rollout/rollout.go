// Package rollout reads the control plane, its Machines, nodes and servers, and says what does not agree yet.
package rollout

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Placeless is a note about nodes that do not say where they stand. The cluster works without: only what spreads Pods
// over regions or zones does not see any.
func (r State) Placeless() string {
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

// Merge joins two signals into one.
func Merge(ctx context.Context, a, b <-chan struct{}) <-chan struct{} {
	both := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-a:
			case <-b:
			}
			select {
			case both <- struct{}{}:
			default: // one is waiting already
			}
		}
	}()
	return both
}

// State is everything that has to agree about the nodes. How many there should be, and at which version, is asked of
// the control plane itself: the guide scales and upgrades it with kubectl.
type State struct {
	Replicas int    // of the control plane
	Version  string // of Kubernetes
	rolling  string // what its servers do not have yet
	Nodes    []corev1.Node
	Machines []unstructured.Unstructured
	Servers  []hetzner.Server
}

// Read asks Cluster API, the cluster itself and Hetzner.
func Read(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt, workload *kube.Cluster) (r State,
	err error) {
	tcp, err := capi.Get(ctx, mgmt, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil {
		return State{}, err
	}
	r.Replicas, r.Version, r.rolling = int(capi.Number(tcp, "spec", "replicas")), capi.Text(tcp, "spec", "version"),
		capi.Rolling(tcp)
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return State{}, fmt.Errorf("list the nodes: %w", err)
	}
	r.Nodes = nodes.Items
	slices.SortFunc(r.Nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	if r.Machines, err = capi.List(ctx, mgmt, capi.MachineKind, cfg.ClusterName); err != nil {
		return State{}, err
	}
	r.Servers, err = hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	return r, err
}

// Missing lists what does not agree yet.
func (r State) Missing(networkCIDR string) []string {
	var missing []string
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }

	if r.rolling != "" {
		add("%s", r.rolling)
	}
	if n := len(capi.ControlPlaneMachines(r.Machines)); n != r.Replicas {
		add("%d control plane Machines instead of %d", n, r.Replicas)
	}
	if len(r.Nodes) != len(r.Machines) {
		add("%d nodes for %d Machines", len(r.Nodes), len(r.Machines))
	}
	if len(r.Servers) != len(r.Machines) {
		add("%d servers for %d Machines", len(r.Servers), len(r.Machines))
	}
	servers := map[string]hetzner.Server{}
	for _, s := range r.Servers {
		servers[s.ProviderID()] = s
	}
	network, err := netip.ParsePrefix(networkCIDR)
	if err != nil {
		add("networkCidr: %v", err)
	}
	var why wait.Reasons
	for i := range r.Nodes {
		for _, problem := range situation.NodeProblems(&r.Nodes[i], servers, network, r.Version) {
			why.Add(r.Nodes[i].Name, problem)
		}
	}
	missing = append(missing, why.Lines()...)
	var unknown []string
	for _, m := range r.Machines {
		if capi.Text(&m, "status", "nodeRef", "name") == "" {
			unknown = append(unknown, m.GetName())
		}
	}
	if len(unknown) > 0 {
		add("Cluster API has not seen the nodes of Machines %s (it looks twice a minute)", strings.Join(unknown, ", "))
	}
	return missing
}
