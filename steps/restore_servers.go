package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/etcdview"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// RecoveryTarget is the one server that gets the snapshot. It is in the journal before anything is sent to it.
type RecoveryTarget struct {
	Machine string `json:"machine"`
	Server  string `json:"server"` // its name, which is the node's and the etcd member's
}

// etcdNode is a control plane server, and whether it holds data of etcd.
type etcdNode struct {
	machine, server string
	route           talos.Route // by which it answered
	data            bool
	err             error // it did not answer, or errNotMounted
}

// silent tells that the server did not answer at all.
func (n etcdNode) silent() bool { return n.err != nil && !errors.Is(n.err, errNotMounted) }

// errNotMounted is wrapped where a server answers that it has no data of etcd, and may not see them yet.
var errNotMounted = errors.New("its disk may not be mounted yet")

// lookForEtcd asks every control plane server whether it holds data of etcd, all at once.
func lookForEtcd(ctx context.Context, tools platform.Tools, mgmt *kube.Cluster, c Cluster) (talos.Client, []etcdNode,
	error) {
	config, err := management.SecretValue(ctx, mgmt, c.Name+"-talosconfig", "talosconfig")
	if err != nil {
		return nil, nil, err
	}
	t, err := tools.Talos(config)
	if err != nil {
		return nil, nil, err
	}
	machines, err := capi.List(ctx, mgmt, capi.MachineKind, c.Name)
	if err != nil {
		return nil, nil, err
	}
	machines = capi.ControlPlaneMachines(machines)
	nodes := make([]etcdNode, len(machines))
	var asking sync.WaitGroup
	for i := range machines {
		asking.Go(func() { nodes[i] = askForEtcd(ctx, t, &machines[i], c.LoadBalancerIP) })
	}
	asking.Wait()
	slices.SortFunc(nodes, func(a, b etcdNode) int { return cmp.Compare(a.server, b.server) })
	return t, nodes, nil
}

// askForEtcd asks one server, over the first route that reaches it: its own addresses, and through the load
// balancer, which is the only one where a firewall closes the public addresses.
func askForEtcd(ctx context.Context, t talos.Client, machine *unstructured.Unstructured, balancer string) etcdNode {
	n := etcdNode{machine: machine.GetName(), server: capi.Text(machine, "spec", "infrastructureRef", "name"),
		err: errors.New("it has no address yet")}
	var failed []error
	for _, route := range routesTo(capi.Addresses(machine, capi.AddressExternal),
		capi.Addresses(machine, capi.AddressInternal), balancer) {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		data, err := etcdData(asking, t, route)
		cancel()
		if err == nil {
			n.route, n.data, n.err = route, data, nil
			return n
		}
		failed = append(failed, err)
	}
	if len(failed) > 0 {
		n.err = failed[0] // of its own address: the others are detours
	}
	return n
}

// etcdData tells whether a server holds data of etcd. That it shows none counts only where its etcd has come as far as
// to look for them: before its disk is mounted a server shows none either. So its etcd is asked for its state first.
func etcdData(ctx context.Context, t talos.Client, route talos.Route) (bool, error) {
	is, silent := t.AskBy(ctx, route)
	data, err := t.HasEtcdData(ctx, route)
	switch {
	case err != nil || data:
		return data, err
	case silent != nil:
		return false, fmt.Errorf("%w: %w", errNotMounted, silent)
	case is.Etcd != etcdWaits && is.Etcd != etcdFailed:
		return false, fmt.Errorf("%w: it shows no data of etcd, and its etcd is %q, not %s", errNotMounted,
			cmp.Or(is.Etcd, "not there"), etcdWaits)
	}
	return false, nil
}

// routesTo are the routes to a server's Talos API, the direct ones first.
func routesTo(public, private []string, balancer string) (routes []talos.Route) {
	for _, address := range slices.Concat(public, private) {
		routes = append(routes, talos.Route{Endpoint: address})
	}
	for _, address := range private {
		if balancer != "" {
			routes = append(routes, talos.Route{Endpoint: balancer, Node: address})
		}
	}
	return routes
}

// withData are the nodes that hold data.
func withData(nodes []etcdNode) (found []etcdNode) {
	for _, n := range nodes {
		if n.data {
			found = append(found, n)
		}
	}
	return found
}

// unanswered says which nodes have not answered; empty: all have, and there are as many as wanted.
func unanswered(nodes []etcdNode, want int) string {
	var lines []string
	if len(nodes) < want {
		lines = append(lines, fmt.Sprintf("%d of %d servers are ordered", len(nodes), want))
	}
	var why wait.Reasons
	for _, n := range nodes {
		if n.err != nil {
			why.Add(n.server, n.err.Error())
		}
	}
	return strings.Join(append(lines, why.Lines()...), "; ")
}

// chooseTarget waits until every server answers, and chooses the one that gets the snapshot: that has it already, where
// an earlier run came so far, else the first by name. A server that does not answer may hold an etcd, so all have to.
func (r *restorer) chooseTarget(ctx context.Context, say flow.Say, m Management, c Cluster) (RecoveryTarget, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return RecoveryTarget{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(c.Name)},
		kube.Selection{List: capi.ListOf(capi.HCloudMachineKind), Options: capi.OfCluster(c.Name)},
		kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind),
			Options: []client.ListOption{client.InNamespace(config.Namespace)}},
	)
	var out RecoveryTarget
	w := wait.Wait{What: "the servers", Within: r.cfg.ControlPlaneTimeout.D(), Every: controlPlaneEvery, Changes: changes,
		Explain: r.observer.Progress(mgmt, c.watched())}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		_, nodes, err := lookForEtcd(ctx, r.tools, mgmt, c)
		if kube.Absent(err) {
			return "there is no talosconfig yet", nil
		}
		if err != nil {
			return "", err
		}
		if missing := unanswered(nodes, c.Replicas); missing != "" {
			return missing, nil
		}
		chosen := nodes[0]
		if has := withData(nodes); len(has) > 0 {
			chosen = has[0]
		}
		out = RecoveryTarget{Machine: chosen.machine, Server: chosen.server}
		return "", nil
	})
	return out, err
}

// targetStands: the chosen server is still one of the cluster's. One that was replaced meanwhile does not have the
// snapshot.
func (r *restorer) verifyTarget(ctx context.Context, was RecoveryTarget) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	machine, err := capi.Get(ctx, mgmt, capi.MachineKind, was.Machine)
	if err != nil {
		return verdictFromError(err)
	}
	if machine.GetDeletionTimestamp() != nil {
		return flow.Gone("Machine %s is being deleted", was.Machine)
	}
	return flow.Holds()
}
