package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// seenCloud is what Hetzner says of the cluster's servers, and of its control plane endpoint.
type seenCloud struct {
	situation.Cloud
	endpoint *hetzner.Endpoint // nil: no Primary IP keeps the address, or that is not known
}

func (l *Reader) seeCloud() (c seenCloud) {
	c.Cloud = situation.ReadCloud(l.hetzner.ctx, l.cfg, l.tools, l.hetzner.heard)
	if l.tools.Hetzner == nil {
		l.hetzner.settle()
	} else if c.Err == nil { // beside what the servers say
		c.endpoint, _ = hetzner.FindEndpoint(l.hetzner.ctx, l.tools.Hetzner, l.cfg.ClusterName)
	}
	return c
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

// seeTalos asks the Talos of every server of the control plane that runs, by all routes at once, and etcd for its
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
	for name, all := range routes {
		asking.Go(func() {
			answer, route := situation.AskTalos(ctx, t, all)
			mu.Lock()
			seen.answers[name] = answer
			known := seen.members != nil
			mu.Unlock()
			if answer.Trouble != "" || answer.State != etcdRuns || known {
				return
			}
			members, err := kube.Within(ctx, func() ([]talos.EtcdMember, error) {
				return t.LocalEtcdMembers(ctx, route)
			})
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
	config, err = situation.Talosconfig(l.ctx, manager, situation.WatchedOf(l.cfg))
	if errors.Is(err, situation.ErrNoTalosconfig) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return config, err
}

// routes are the routes to the Talos of each server of the control plane that runs, as Hetzner says; where it is
// silent, as Cluster API does.
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
	if heard(cloud) && cloud.value.Err == nil {
		for _, s := range cloud.value.Servers {
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
		cloud.value.Tell(&told)
	}
	return situation.MachineRoutes(told)
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
