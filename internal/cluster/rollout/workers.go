package rollout

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// ControlPlaneNodes are the nodes of the control plane.
func (r State) ControlPlaneNodes() []corev1.Node { return nodesWith(r.Nodes, true) }

func nodesWith(nodes []corev1.Node, controlPlane bool) []corev1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool {
		_, is := n.Labels[capi.ControlPlaneRole]
		return is != controlPlane
	})
}

// Workers are the MachineDeployments of a cluster, and the Machines, nodes and servers that are not the control
// plane's.
type Workers struct {
	Deployments []unstructured.Unstructured
	Machines    []unstructured.Unstructured
	Nodes       []corev1.Node
	Servers     []hetzner.Server // of the cluster, or of the pool that is read; nil: Hetzner was not asked yet
}

// ReadWorkers reads what there is of workers.
func (o *Reader) ReadWorkers(ctx context.Context) (w Workers, err error) {
	w.Deployments, err = capi.List(ctx, o.Management, o.Cfg.Namespace, capi.MachineDeploymentKind, o.Cfg.ClusterName)
	if err != nil {
		return Workers{}, err
	}
	nodes, machines, err := o.objects(ctx)
	if err != nil {
		return Workers{}, err
	}
	w.Machines = slices.DeleteFunc(machines, func(m unstructured.Unstructured) bool {
		_, controlPlane := m.GetLabels()[capi.ControlPlaneLabel]
		return controlPlane
	})
	w.Nodes = nodesWith(nodes, false)
	if o.Pool != "" {
		w = w.of(o.Pool)
	}
	if len(w.Deployments)+len(w.Machines)+len(w.Nodes) == 0 {
		return w, nil
	}
	w.Servers = o.read(w) // where only these do not agree, Hetzner is asked again after serversEvery
	_, _, err = o.ask(ctx, w.Missing(o.Cfg.NetworkCIDR))
	w.Servers = o.read(w)
	return w, err
}

// read are the servers as they were last: of the cluster, or of the pool that is read.
func (o *Reader) read(w Workers) []hetzner.Server {
	if o.Pool == "" || o.servers == nil {
		return o.servers
	}
	return slices.DeleteFunc(slices.Clone(o.servers), func(s hetzner.Server) bool { return !w.has(s) })
}

// of leaves the workers of a pool.
func (w Workers) of(pool string) Workers {
	other := func(o unstructured.Unstructured) bool { return o.GetLabels()[capi.WorkerPoolLabel] != pool }
	w.Deployments, w.Machines = slices.DeleteFunc(w.Deployments, other), slices.DeleteFunc(w.Machines, other)
	w.Nodes = slices.DeleteFunc(w.Nodes, func(n corev1.Node) bool {
		return n.Labels[capi.WorkerPoolNodeLabel] != pool && !w.hasMachine(n.Name)
	})
	return w
}

// hasMachine tells whether a server's name is that of one of the Machines.
func (w Workers) hasMachine(server string) bool {
	return slices.ContainsFunc(w.Machines, func(m unstructured.Unstructured) bool {
		return capi.Text(&m, "spec", "infrastructureRef", "name") == server
	})
}

// has tells whether a server is of one of the Machines, or of a MachineDeployment by its name: <deployment>-<5>-<5>.
func (w Workers) has(s hetzner.Server) bool {
	return w.hasMachine(s.Name) || s.Worker && slices.ContainsFunc(w.Deployments, func(d unstructured.Unstructured) bool {
		rest, found := strings.CutPrefix(s.Name, d.GetName()+"-")
		return found && strings.Count(rest, "-") == 1
	})
}

// Missing lists what does not agree yet: each MachineDeployment has its servers, at its version and configuration, and
// each of them is a Ready node.
func (w Workers) Missing(networkCIDR string) []string {
	var missing []string
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	wanted := 0
	for i := range w.Deployments {
		d := &w.Deployments[i]
		if d.GetDeletionTimestamp() != nil {
			add("MachineDeployment %s is being deleted", d.GetName())
			continue
		}
		want := capi.Number(d, "spec", "replicas")
		wanted += int(want)
		if capi.Lagging(d) {
			add("Cluster API has not looked at the last change of MachineDeployment %s yet", d.GetName())
			continue
		}
		if lacks := serversLacking(d, want); lacks != "" {
			add("MachineDeployment %s%s", d.GetName(), lacks)
		}
	}
	if len(w.Machines) != wanted {
		add("%d worker Machines instead of %d", len(w.Machines), wanted)
	}
	if len(w.Nodes) != len(w.Machines) {
		add("%d worker nodes for %d Machines", len(w.Nodes), len(w.Machines))
	}
	if n := countServers(w.Servers, true); w.Servers != nil && n != len(w.Machines) {
		add("%d worker servers for %d Machines", n, len(w.Machines))
	}
	return append(missing, w.nodeProblems(networkCIDR)...)
}

// serversLacking says how far a MachineDeployment is from the servers that it is to have; empty: it has them.
func serversLacking(d *unstructured.Unstructured, want int64) string {
	for _, n := range []struct{ field, is string }{{"replicas", "created"}, {"updatedReplicas", "up to date"},
		{"readyReplicas", "ready"}} {
		switch has := capi.Number(d, "status", n.field); {
		case has > want:
			return fmt.Sprintf(" has %d servers and is to have %d", has, want)
		case has < want:
			return fmt.Sprintf(": %d of %d servers %s", has, want, n.is)
		}
	}
	return ""
}

func (w Workers) nodeProblems(networkCIDR string) []string {
	network, err := netip.ParsePrefix(networkCIDR)
	if err != nil {
		return []string{fmt.Sprintf("networkCidr: %v", err)}
	}
	versions := map[string]string{} // of Kubernetes, by the name of node and server
	for i := range w.Machines {
		versions[capi.Text(&w.Machines[i], "spec", "infrastructureRef", "name")] = capi.Text(&w.Machines[i], "spec", "version")
	}
	servers := byProviderID(w.Servers)
	var why wait.Reasons
	for i := range w.Nodes {
		n := w.Nodes[i].DeepCopy()
		delete(n.Labels, situation.ExcludeFromBalancer) // a pool may be kept out of load balancers
		for _, problem := range situation.NodeProblems(n, servers, network, versions[n.Name]) {
			why.Add(n.Name, problem)
		}
	}
	return why.Lines()
}
