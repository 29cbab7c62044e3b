package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// seenCloud is what Hetzner says of the cluster's servers, and of its control plane endpoint.
type seenCloud struct {
	at       time.Time
	servers  []hetzner.Server
	failures []hetzner.Failure
	endpoint *hetzner.Endpoint // nil: no Primary IP keeps the address, or that is not known
	err      error
}

func (l *Reader) seeCloud() (c seenCloud) {
	if l.tools.Hetzner == nil {
		l.hetzner.settle()
		return seenCloud{err: errors.New("there is no token")}
	}
	c.servers, c.err = hetzner.Servers(l.hetzner.ctx, l.tools.Hetzner, l.cfg.ClusterName)
	c.at, c.err = time.Now().UTC(), l.hetzner.heard(c.err)
	if c.err == nil { // beside what the servers say
		c.failures, _ = hetzner.Failures(l.hetzner.ctx, l.tools.Hetzner, time.Now().Add(-situation.FailuresSince))
		c.endpoint, _ = hetzner.FindEndpoint(l.hetzner.ctx, l.tools.Hetzner, l.cfg.ClusterName)
	}
	return c
}

// tell writes it into a situation.
func (c seenCloud) tell(s *why.Situation) {
	if c.err != nil {
		s.Silent[why.Hetzner] = c.err.Error()
		return
	}
	s.Cloud, s.CloudAt = []why.Server{}, c.at
	for _, one := range c.servers {
		s.Cloud = append(s.Cloud, why.Server{ID: one.ID, Name: one.Name, Status: one.Status, Protected: one.Protected})
	}
	for _, f := range c.failures {
		s.Failures = append(s.Failures, why.Failure(f))
	}
}

// seenObjects are the objects of Cluster API as the cluster that manages has them.
type seenObjects struct {
	told why.Situation
	err  error
}

// seenTalos is what the servers' Talos answer, and etcd's members.
type seenTalos struct {
	answers map[string]why.Talos
	members []talos.EtcdMember
	etcdErr error // why the members are not known
}

// cloudFirst is how long the addresses of the servers are awaited from Hetzner, before those that Cluster API knows are
// taken.
const cloudFirst = 700 * time.Millisecond

// seeTalos asks the Talos of every server of the control plane that runs, by all ways at once, and etcd for its
// members.
func (l *Reader) seeTalos(cloud *promise[seenCloud], objects *promise[seenObjects],
	clusters lookedClusters) (seen seenTalos) {
	seen.answers = map[string]why.Talos{}
	config, err := l.talosconfig(clusters)
	if errors.Is(err, fs.ErrNotExist) {
		return seen // there are no servers yet
	}
	var t talos.Client
	var balancers []string
	if err == nil {
		t, err = l.tools.Talos(config)
	}
	if err != nil {
		seen.etcdErr = err
		return seen
	}
	if credentials, err := talos.Parse(config); err == nil {
		balancers, _ = credentials.Targets()
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, silentAfter, fmt.Errorf("no answer within %s", silentAfter))
	defer cancel()
	routes := l.routes(cloud, objects, balancers)
	seen.etcdErr = errors.New("etcd runs on no server with a Talos that answers")
	var mu sync.Mutex
	var asking sync.WaitGroup
	for name, ways := range routes {
		asking.Go(func() {
			answer, way := askTalosBy(ctx, t, ways)
			mu.Lock()
			seen.answers[name] = answer
			known := seen.members != nil
			mu.Unlock()
			if answer.Trouble != "" || answer.State != etcdRuns || known {
				return
			}
			members, err := situation.Within(ctx, func() ([]talos.EtcdMember, error) { return t.EtcdMembersOf(ctx, way) })
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				seen.members, seen.etcdErr = members, nil
			case seen.members == nil:
				seen.etcdErr = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	asking.Wait()
	return seen
}

// etcdRuns is the state of Talos's service etcd when it runs.
const etcdRuns = "Running"

// talosconfig is the file in the state folder, or, before there is one, what the bootstrap provider keeps;
// fs.ErrNotExist: neither is there.
func (l *Reader) talosconfig(clusters lookedClusters) ([]byte, error) {
	config, err := l.tools.Files.Read(platform.Talosconfig)
	if !errors.Is(err, fs.ErrNotExist) {
		return config, err
	}
	manager := clusters.manager.get()
	if manager == nil {
		return nil, err
	}
	config, err = connect.SecretValue(l.ctx, manager, l.cfg.Namespace, l.cfg.ClusterName+"-talosconfig", "talosconfig")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return config, nil
}

// routes are the ways to the Talos of each server of the control plane that runs, as Hetzner says; where it is silent,
// as Cluster API does.
func (l *Reader) routes(cloud *promise[seenCloud], objects *promise[seenObjects],
	balancers []string) map[string][]talos.Route {
	patience := time.NewTimer(cloudFirst)
	defer patience.Stop()
	select {
	case <-cloud.done:
	case <-patience.C:
		select {
		case <-cloud.done:
		case <-objects.done:
		}
	}
	routes := map[string][]talos.Route{}
	if heard(cloud) && cloud.value.err == nil {
		for _, s := range cloud.value.servers {
			if s.ControlPlane && s.Status == "running" {
				routes[s.Name] = etcdview.RoutesTo(s, balancers)
			}
		}
		if len(routes) > 0 {
			return routes
		}
	}
	told := objects.get().told
	told.Silent = map[string]string{}
	if heard(cloud) {
		cloud.value.tell(&told)
	}
	for _, m := range capi.ControlPlaneMachines(told.Machines) {
		name := capi.Text(&m, "spec", "infrastructureRef", "name")
		if told.Runs(name) {
			routes[name] = machineRoutes(&m)
		}
	}
	return routes
}

// heard reports whether a promise is known.
func heard[T any](p *promise[T]) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func machineRoutes(m *unstructured.Unstructured) (routes []talos.Route) {
	for _, address := range append(capi.Addresses(m, capi.AddressExternal), capi.Addresses(m, capi.AddressInternal)...) {
		routes = append(routes, talos.Route{Endpoint: address})
	}
	return routes
}

// askTalosBy asks one server by all ways at once; the first that answers counts.
func askTalosBy(ctx context.Context, t talos.Client, ways []talos.Route) (why.Talos, talos.Route) {
	if len(ways) == 0 {
		return why.Talos{Trouble: "its address is not known yet"}, talos.Route{}
	}
	type answer struct {
		node talos.Node
		way  talos.Route
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(ways))
	for _, way := range ways {
		go func() {
			node, err := t.AskBy(ctx, way)
			answers <- answer{node, way, err}
		}()
	}
	var last error
	for range ways {
		select {
		case a := <-answers:
			if a.err == nil {
				return why.Talos{Etcd: a.node.Healthy, State: a.node.Etcd}, a.way
			}
			last = a.err
		case <-ctx.Done():
			return why.Talos{Trouble: context.Cause(ctx).Error()}, talos.Route{}
		}
	}
	return why.Talos{Trouble: last.Error()}, talos.Route{}
}
