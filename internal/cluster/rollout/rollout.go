// Package rollout reads the control plane, its Machines, nodes and servers, and says what does not agree yet, and which
// PodDisruptionBudgets do not let a node be drained.
package rollout

import (
	"context"
	"fmt"
	"net/netip"
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
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
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
	unasked  bool // Hetzner was not asked for the servers yet
	nodeRefs bool // Machines without a node are missing, too
}

// Read asks Cluster API, the cluster itself and Hetzner. Machines whose node Cluster API does not know are missing.
func Read(ctx context.Context, cfg config.Config, tools platform.Tools, mgmt, workload *kube.Cluster) (State, error) {
	return (&Reader{Cfg: cfg, Tools: tools, Management: mgmt, Workload: workload, NodeRefs: true}).Read(ctx)
}

// serversEvery is how often a Reader asks Hetzner while something else does not agree.
const serversEvery = 20 * time.Second

// Reader is for a wait, which reads again and again. It asks Hetzner each time once Cluster API and the nodes agree:
// what it finds complete is so at Hetzner too. Until then the servers only add to what a wait says: they are asked for
// later, and may be some seconds old.
type Reader struct {
	Cfg                  config.Config
	Tools                platform.Tools
	Management, Workload *kube.Cluster
	// NodeRefs tells that Cluster API has to know the node of each Machine, too.
	NodeRefs bool
	// Balance adds control plane servers to the load balancer where CAPH left them out, whenever Hetzner is asked, and is
	// told. nil: nothing is changed.
	Balance flow.Say

	servers []hetzner.Server
	known   bool      // servers have been asked for
	next    time.Time // when they are to be asked for again
}

// Read asks Cluster API, the cluster itself and, where it matters, Hetzner.
func (o *Reader) Read(ctx context.Context) (State, error) {
	r, err := readObjects(ctx, o.Cfg, o.Management, o.Workload)
	if err != nil {
		return State{}, err
	}
	r.nodeRefs = o.NodeRefs
	if o.next.IsZero() {
		o.next = time.Now().Add(serversEvery)
	}
	if len(r.missing(o.Cfg.NetworkCIDR, nil)) > 0 && time.Now().Before(o.next) {
		r.Servers, r.unasked = o.servers, !o.known
		return r, nil
	}
	if r.Servers, err = hetzner.Servers(ctx, o.Tools.Hetzner, o.Cfg.ClusterName); err != nil {
		return State{}, err
	}
	o.servers, o.known, o.next = r.Servers, true, time.Now().Add(serversEvery)
	return r, o.balance(ctx, r)
}

// readObjects asks Cluster API and the cluster itself.
func readObjects(ctx context.Context, cfg config.Config, mgmt, workload *kube.Cluster) (r State, err error) {
	tcp, err := capi.Get(ctx, mgmt, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
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
	r.Machines, err = capi.List(ctx, mgmt, cfg.Namespace, capi.MachineKind, cfg.ClusterName)
	return r, err
}

// Missing lists what does not agree yet.
func (r State) Missing(networkCIDR string) []string {
	if r.unasked {
		return r.missing(networkCIDR, nil)
	}
	return r.missing(networkCIDR, hetzner.ByProviderID(r.Servers))
}

// missing is Missing with servers by their provider IDs; nil: they are not compared.
func (r State) missing(networkCIDR string, servers map[string]hetzner.Server) []string {
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
	if n := countServers(servers, false); servers != nil && n != len(machines) {
		add("%d control plane servers for %d Machines", n, len(machines))
	}
	network, err := netip.ParsePrefix(networkCIDR)
	if err != nil {
		add("networkCidr: %v", err)
	}
	var why wait.Reasons
	for i := range nodes {
		if problem := situation.MismatchProblem(&nodes[i], r.Machines); problem != "" {
			why.Add(nodes[i].Name, problem)
			continue
		}
		for _, problem := range situation.NodeProblems(&nodes[i], servers, network, r.Version) {
			why.Add(nodes[i].Name, problem)
		}
	}
	missing = append(missing, why.Lines()...)
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
