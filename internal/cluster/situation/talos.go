package situation

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// ErrNoTalosconfig tells that the bootstrap provider has not written a cluster's talosconfig yet.
var ErrNoTalosconfig = errors.New("there is no talosconfig yet")

// Talosconfig is what the bootstrap provider keeps in the cluster that manages.
func Talosconfig(ctx context.Context, manager *kube.Cluster, c Watched) ([]byte, error) {
	config, err := connect.SecretValue(ctx, manager, c.Namespace, c.Name+"-talosconfig", "talosconfig")
	if kube.Absent(err) {
		return nil, ErrNoTalosconfig
	}
	return config, err
}

// readTalos asks the Talos of servers, all at once, each by its first address alone: a server that boots refuses that
// at once, and a wait looks again soon.
func (o *Observer) readTalos(ctx context.Context, mgmt *kube.Cluster, c Watched,
	routes map[string][]talos.Route) map[string]why.Talos {
	config, err := Talosconfig(ctx, mgmt, c)
	var t talos.Client
	if err == nil {
		t, err = o.Tools.Talos(config)
	}
	answers := map[string]why.Talos{}
	if err != nil {
		for server := range routes {
			answers[server] = why.Talos{Trouble: err.Error()}
		}
		return answers
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	for server, all := range routes {
		asking.Go(func() {
			answer, _ := AskTalos(ctx, t, all[:min(1, len(all))])
			mu.Lock()
			defer mu.Unlock()
			answers[server] = answer
		})
	}
	asking.Wait()
	return answers
}

// MachineRoutes are the routes to the Talos of each control plane server that runs, as Cluster API knows its addresses.
func MachineRoutes(s why.Situation) map[string][]talos.Route {
	routes := map[string][]talos.Route{}
	for _, m := range capi.ControlPlaneMachines(s.Machines) {
		if server := capi.Text(&m, "spec", "infrastructureRef", "name"); s.Runs(server) {
			routes[server] = etcdview.RoutesOf(&m, "")
		}
	}
	return routes
}

// AskTalos asks a server by all routes at once; the first that answers counts. Where none does, the trouble is that of
// the first of the routes whose error is known.
func AskTalos(ctx context.Context, t talos.Client, routes []talos.Route) (why.Talos, talos.Route) {
	if len(routes) == 0 {
		return why.Talos{Trouble: "its address is not known yet"}, talos.Route{}
	}
	type answer struct {
		node  talos.Node
		route int
		err   error
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(routes))
	for i, route := range routes {
		go func() {
			node, err := t.Ask(asking, route)
			answers <- answer{node, i, err}
		}()
	}
	errs := make([]error, len(routes), len(routes)+1)
	for range routes {
		select {
		case a := <-answers:
			if a.err == nil {
				return why.Talos{Etcd: a.node.Healthy, State: a.node.Etcd}, routes[a.route]
			}
			errs[a.route] = a.err
			continue
		case <-ctx.Done():
			errs = append(errs, context.Cause(ctx))
		}
		break
	}
	return why.Talos{Trouble: cmp.Or(errs...).Error()}, talos.Route{}
}
