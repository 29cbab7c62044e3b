package environment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/plane"
)

// begin starts the effect of a fault. It writes random choices into f.
func (lab *Lab) begin(ctx context.Context, f *Fault) (effect, error) {
	switch f.Kind {
	case FaultAPIServerRestart:
		return lab.restartAPIServers(ctx, f)
	case FaultManagementAway:
		return lab.managementAway(f)
	case FaultWebhookUnready:
		return lab.webhookUnready(f)
	case FaultClusterIPsAway:
		return lab.clusterIPsAway(f)
	case FaultVanishServer:
		return lab.vanishServer(ctx, f)
	case FaultVanishLoadBalancer:
		return lab.vanishLoadBalancer(f)
	case FaultLowBudget:
		undo, err := lab.cloud.LowerBudget(*f.Remaining, f.Limit)
		if err != nil {
			return effect{}, control.BadRequest(err)
		}
		return effect{undo: undo}, nil
	case FaultExpiredKubeconfig:
		return lab.expireKubeconfig(f)
	default:
		return lab.injectCloudFault(f)
	}
}

// injectCloudFault injects a fault of the simulated cloud.
func (lab *Lab) injectCloudFault(f *Fault) (effect, error) {
	id, err := lab.cloud.InjectFault(f.Fault)
	if err != nil {
		return effect{}, control.BadRequest(err)
	}
	hits, over := lab.cloud.FollowFault(id)
	return effect{undo: func() { lab.cloud.RemoveFault(id) }, over: over, hits: hits}, nil
}

// apiServer is a kube-apiserver that a fault can affect.
type apiServer struct {
	name  string // name of the cluster or the server
	plane *plane.Plane
}

// apiServers returns the ready kube-apiservers: of a cluster by its name, of servers by a pattern, or of the servers of
// a cluster that match.
func (lab *Lab) apiServers(cluster, server string) ([]apiServer, error) {
	if _, err := path.Match(server, ""); err != nil {
		return nil, control.BadRequest(fmt.Errorf("pattern %q: %w", server, err))
	}
	var found []apiServer
	if m := lab.managements.Find(cluster); m != nil && server == "" && m.Ready() {
		found = append(found, apiServer{m.Name(), m.Plane()})
	}
	for _, t := range lab.talos.Status() {
		matches, _ := path.Match(server, t.Name)
		if cluster != "" && t.Cluster != cluster || server != "" && !matches {
			continue
		}
		if p := lab.talos.Plane(t.ID); p != nil && (cluster != "" || server != "") {
			found = append(found, apiServer{t.Name, p})
		}
	}
	if len(found) == 0 {
		return nil, control.BadRequest(fmt.Errorf("cluster %q, server %q: no kube-apiserver is ready: see lab status", cluster,
			server))
	}
	return found, nil
}

// chosen picks one of several by a seed.
func chosen[T any](of []T, seed uint64) T { return of[rand.New(rand.NewPCG(seed, 1)).IntN(len(of))] }

func (lab *Lab) restartAPIServers(ctx context.Context, f *Fault) (effect, error) {
	hit, err := lab.apiServers(f.Cluster, f.Server)
	if err != nil {
		return effect{}, err
	}
	if f.Server != "" {
		one := chosen(hit, f.Seed)
		f.Server, hit = one.name, []apiServer{one}
	}
	var releases []func()
	release := func() {
		for _, r := range releases {
			r()
		}
		releases = nil
	}
	for _, one := range hit {
		free, err := one.plane.HoldAPI(ctx)
		if err != nil {
			release()
			return effect{}, err
		}
		releases = append(releases, free)
		lab.cfg.Log.Info("a kube-apiserver was killed", "of", one.name)
	}
	// The fault ends when all of them are ready again.
	life, end := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		timer := time.NewTimer(time.Duration(f.For))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-life.Done():
		}
		release()
		for _, one := range hit {
			if err := one.plane.AwaitAPI(life); err != nil && life.Err() == nil {
				lab.cfg.Log.Error("a kube-apiserver that was killed is not ready again", "of", one.name, "reason", err)
			}
		}
	}()
	return effect{undo: func() { end(); <-over }, over: over, hits: func() int { return len(hit) }, ownTime: true}, nil
}

func (lab *Lab) managementAway(f *Fault) (effect, error) {
	if f.Cluster == "" {
		all := lab.managements.List()
		if len(all) != 1 {
			return effect{}, control.BadRequest(fmt.Errorf("there are %d management clusters: name one with cluster", len(all)))
		}
		f.Cluster = all[0].Name()
	}
	m := lab.managements.Find(f.Cluster)
	if m == nil || !m.Ready() {
		return effect{}, control.BadRequest(fmt.Errorf("management cluster %q does not exist or is not ready: see lab status",
			f.Cluster))
	}
	return effect{undo: m.Plane().FreezeAPI()}, nil
}

func (lab *Lab) webhookUnready(f *Fault) (effect, error) {
	for _, pattern := range []string{f.Cluster, f.Service} {
		if _, err := path.Match(pattern, ""); err != nil {
			return effect{}, control.BadRequest(fmt.Errorf("pattern %q: %w", pattern, err))
		}
	}
	var hits atomic.Int64
	end := lab.outages.Begin(f.Cluster, f.Service, func() { hits.Add(1) })
	return effect{undo: end, hits: func() int { return int(hits.Load()) }}, nil
}

func (lab *Lab) clusterIPsAway(f *Fault) (effect, error) {
	if _, err := path.Match(f.Server, ""); err != nil {
		return effect{}, control.BadRequest(fmt.Errorf("pattern %q: %w", f.Server, err))
	}
	var hits atomic.Int64
	end := lab.registry.TakeClusterIPs(f.Server, func() { hits.Add(1) })
	return effect{undo: end, hits: func() int { return int(hits.Load()) }}, nil
}

func (lab *Lab) vanishServer(ctx context.Context, f *Fault) (effect, error) {
	var names []string
	for _, s := range lab.cloud.Servers() {
		names = append(names, s.Name)
	}
	var err error
	if f.Server, err = oneOf(names, "server", f.Server, f.Seed); err != nil {
		return effect{}, err
	}
	return gone(), lab.cloud.VanishServer(context.WithoutCancel(ctx), f.Server)
}

func (lab *Lab) vanishLoadBalancer(f *Fault) (effect, error) {
	var err error
	if f.LoadBalancer, err = oneOf(lab.cloud.LoadBalancerNames(), "load balancer", f.LoadBalancer, f.Seed); err != nil {
		return effect{}, err
	}
	return gone(), lab.cloud.VanishLoadBalancer(f.LoadBalancer)
}

// oneOf chooses one of the names that match a pattern.
func oneOf(all []string, what, pattern string, seed uint64) (string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return "", control.BadRequest(fmt.Errorf("pattern %q: %w", pattern, err))
	}
	var names []string
	for _, name := range all {
		if ok, _ := path.Match(pattern, name); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", control.BadRequest(fmt.Errorf("no %s is named %q: see lab status", what, pattern))
	}
	slices.Sort(names)
	return chosen(names, seed), nil
}

// gone is the effect of a fault that cannot be undone: it is over at once.
func gone() effect {
	over := make(chan struct{})
	close(over)
	return effect{over: over}
}
