package etcdview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// States of Talos's service etcd. Both come after the disk is mounted.
const (
	// Preparing is the state of an etcd that waits to be bootstrapped or to join others. It becomes Failed after half an
	// hour.
	Preparing = "Preparing"
	// Failed is the state of an etcd that does not start.
	Failed = "Failed"
)

// Node is a control plane server, and whether it has data of etcd.
type Node struct {
	Machine, Server string
	Route           talos.Route // by which it answered
	Data            bool
	Err             error // it did not answer, or ErrNotMounted
}

// Silent tells that the server did not answer at all.
func (n Node) Silent() bool { return n.Err != nil && !errors.Is(n.Err, ErrNotMounted) }

// ErrNotMounted is wrapped where a server answers that it has no data of etcd, but may not have mounted its disk yet.
var ErrNotMounted = errors.New("its disk may not be mounted yet")

// ControlPlane returns the Machines of a control plane, and a client to ask their Talos with, as the cluster that
// manages it has them.
func ControlPlane(ctx context.Context, tools platform.Tools, manager *kube.Cluster, namespace,
	cluster string) (talos.Client, []unstructured.Unstructured, error) {
	config, err := connect.SecretValue(ctx, manager, namespace, cluster+"-talosconfig", "talosconfig")
	if err != nil {
		return nil, nil, err
	}
	t, err := tools.Talos(config)
	if err != nil {
		return nil, nil, err
	}
	machines, err := capi.List(ctx, manager, namespace, capi.MachineKind, cluster)
	return t, capi.ControlPlaneMachines(machines), err
}

// AskMachines asks the server of every control plane Machine whether it has data of etcd, all at once.
func AskMachines(ctx context.Context, tools platform.Tools, mgmt *kube.Cluster, namespace, cluster,
	loadBalancerIP string) (talos.Client, []Node, error) {
	t, machines, err := ControlPlane(ctx, tools, mgmt, namespace, cluster)
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]Node, len(machines))
	var asking sync.WaitGroup
	for i := range machines {
		asking.Go(func() { nodes[i] = askMachine(ctx, t, &machines[i], loadBalancerIP) })
	}
	asking.Wait()
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Server, b.Server) })
	return t, nodes, nil
}

// askMachine asks one Machine's server, over the first route that reaches it: its own addresses, and through the load
// balancer, which is the only one where a firewall closes the public addresses.
func askMachine(ctx context.Context, t talos.Client, machine *unstructured.Unstructured, balancer string) Node {
	n := Node{Machine: machine.GetName(), Server: capi.Text(machine, "spec", "infrastructureRef", "name"),
		Err: errors.New("it has no address yet")}
	return n.ask(ctx, t, RoutesOf(machine, balancer))
}

// ask is the node with the answer over the first route that reaches its server; the error is that of the first route.
func (n Node) ask(ctx context.Context, t talos.Client, routes []talos.Route) Node {
	for i, route := range routes {
		asking, cancel := context.WithTimeout(ctx, AskWithin)
		data, err := hasData(asking, t, route)
		cancel()
		if err == nil {
			n.Route, n.Data, n.Err = route, data, nil
			return n
		}
		if i == 0 {
			n.Err = err
		}
	}
	return n
}

// hasData tells whether a server has data of etcd. That it shows none counts only where its etcd has come as far as
// to look for them: before its disk is mounted a server shows none either. So its etcd is asked for its state first.
func hasData(ctx context.Context, t talos.Client, route talos.Route) (bool, error) {
	is, silent := t.Ask(ctx, route)
	data, err := t.HasEtcdData(ctx, route)
	switch {
	case err != nil || data:
		return data, err
	case silent != nil:
		return false, fmt.Errorf("%w: %w", ErrNotMounted, silent)
	case is.Etcd != Preparing && is.Etcd != Failed:
		return false, fmt.Errorf("%w: it shows no data of etcd, and its etcd is %q, not %s", ErrNotMounted,
			cmp.Or(is.Etcd, "not there"), Preparing)
	}
	return false, nil
}

// RoutesOf are the routes to the Talos API of a Machine's server, the direct ones first.
func RoutesOf(machine *unstructured.Unstructured, balancer string) []talos.Route {
	return Routes(capi.Addresses(machine, capi.AddressExternal), capi.Addresses(machine, capi.AddressInternal), balancer)
}

// Routes are the routes to a server's Talos API, the direct ones first.
func Routes(public, private []string, balancer string) (routes []talos.Route) {
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

// WithData are the nodes that have data.
func WithData(nodes []Node) (found []Node) {
	for _, n := range nodes {
		if n.Data {
			found = append(found, n)
		}
	}
	return found
}

// Unanswered says which nodes have not answered; empty: all have, and there are as many as wanted.
func Unanswered(nodes []Node, want int) string {
	var lines []string
	if len(nodes) < want {
		lines = append(lines, fmt.Sprintf("%d of %d servers are ordered", len(nodes), want))
	}
	var why wait.Reasons
	for _, n := range nodes {
		if n.Err != nil {
			why.Add(n.Server, n.Err.Error())
		}
	}
	return strings.Join(append(lines, why.Lines()...), "; ")
}
