// Package management runs management clusters: real control planes with one Node each, whose Pods are processes.
package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/egress"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/programs"
	"github.com/slipway-k8s/slipway/lab/sandbox"
	"github.com/slipway-k8s/slipway/lab/slot"
)

// Config is what the clusters of a daemon share.
type Config struct {
	Dir     string // the daemon's folder; a cluster's data are in management/<name>, its logs in logs and clusters
	Sockets string // folder of the Unix sockets
	Bin     string // folder of the upstream programs
	// Kubernetes are the programs of their control planes.
	Kubernetes *programs.Sets
	Lab        string // the lab's own binary, for stand-ins in Pods; empty: there are none
	// ProviderID begins the provider IDs of Nodes: "lab://".
	ProviderID string
	// APIPort is the port of kube-apiservers; empty: plane.APIPort.
	APIPort string
	// Durable has etcd flush what it writes, as for data that no rehearsal can make again.
	Durable   bool
	Network   netns.Network
	State     *folder.State // records the clusters
	Processes *proc.Supervisor
	Registry  *kubelet.Registry
	Outages   *egress.Outages
	Sandboxes *sandbox.Runtime // nil: Pods share the daemon's network
	Programs  []kubelet.Program
	// RefuseUnmapped has a Pod wait, as one whose image cannot be pulled, if no program runs for an image of it.
	RefuseUnmapped bool
	PodEnv         map[string]string
	Latency        kubelet.Latency
	// BeforePods returns when the Pods of clusters that Resume starts may start; nil: at once.
	BeforePods func(context.Context)
	Log        *slog.Logger
}

func (c Config) path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// Clusters are the management clusters of a daemon.
type Clusters struct {
	life context.Context // until the daemon ends
	cfg  Config

	changing sync.Mutex // held while a cluster is created or removed; guards stopped
	stopped  bool

	mu       sync.Mutex
	clusters map[string]*Cluster
}

var errNotFound = control.NotFound("there is no such management cluster")

// New starts no cluster. Those that are started run until Stop, or until life is done.
func New(life context.Context, cfg Config) *Clusters {
	if cfg.BeforePods == nil {
		cfg.BeforePods = atOnce
	}
	return &Clusters{life: life, cfg: cfg, clusters: map[string]*Cluster{}}
}

// Resume starts, in the background, every recorded cluster.
func (s *Clusters) Resume() {
	for _, spec := range s.cfg.State.Management() {
		s.begin(spec, s.cfg.BeforePods)
	}
}

// begin starts a cluster in the background; its Pods only after beforePods.
func (s *Clusters) begin(spec folder.Cluster, beforePods func(context.Context)) *Cluster {
	ctx, end := context.WithCancel(s.life)
	m := &Cluster{cfg: s.cfg, spec: spec, beforePods: beforePods, started: make(chan struct{}), end: end}
	s.mu.Lock()
	s.clusters[spec.Name] = m
	s.mu.Unlock()
	go func() {
		defer close(m.started)
		if m.err = m.start(ctx); m.err != nil {
			s.cfg.Log.Error("a management cluster did not start", "cluster", spec.Name, "reason", m.err)
			return
		}
		s.cfg.Log.Info("a management cluster is ready", "cluster", spec.Name, "endpoint", m.Endpoint())
	}()
	return m
}

// atOnce lets the Pods of a cluster start without a wait.
func atOnce(context.Context) {}

// Find returns a cluster, whether it has started or not; nil: there is none.
func (s *Clusters) Find(name string) *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[name]
}

// Get returns a cluster after its start has ended.
func (s *Clusters) Get(ctx context.Context, name string) (*Cluster, error) {
	m := s.Find(name)
	if m == nil {
		return nil, errNotFound
	}
	return m, m.await(ctx)
}

// await waits until the cluster's start has ended, and returns its error.
func (m *Cluster) await(ctx context.Context) error {
	select {
	case <-m.started:
		if m.err != nil {
			return fmt.Errorf("management cluster %s: %w", m.Name(), m.err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ensure creates a cluster of a version of Kubernetes (empty: the first that there is) or finds it, and returns it when
// it is ready. If the client gives up, the start continues; a failed start is tried again.
func (s *Clusters) Ensure(ctx context.Context, name, kubernetes string) (*Cluster, error) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return nil, control.BadRequest(fmt.Errorf("management cluster name %q: %s", name, problems[0]))
	}
	m, err := s.ensureBegun(ctx, name, kubernetes)
	if err != nil {
		return nil, err
	}
	return m, m.await(ctx)
}

func (s *Clusters) ensureBegun(ctx context.Context, name, kubernetes string) (*Cluster, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.stopped {
		return nil, control.ErrStopping
	}
	if m := s.Find(name); m != nil {
		if !m.failed() {
			return m, nil
		}
		if err := m.stop(ctx); err != nil {
			return nil, err
		}
		return s.begin(m.spec, atOnce), nil
	}
	if kubernetes != "" {
		if _, err := s.cfg.Kubernetes.Choose(kubernetes); err != nil {
			return nil, control.BadRequest(fmt.Errorf("create management cluster %s: %w", name, err))
		}
	}
	spec := folder.Cluster{Name: name, Kubernetes: kubernetes}
	err := s.cfg.State.Update(func(d *folder.Data) error {
		for i := 1; i <= slot.MaxManagement; i++ {
			if !slices.ContainsFunc(d.Management, func(o folder.Cluster) bool { return o.Index == i }) {
				spec.Index = i
				d.Management = append(d.Management, spec)
				return nil
			}
		}
		return fmt.Errorf("all %d addresses of management clusters are in use", slot.MaxManagement)
	})
	if err != nil {
		return nil, err
	}
	// A daemon that ended while it removed a cluster of this name may have left a part of it.
	if err := s.cfg.remove(name); err != nil {
		return nil, err
	}
	return s.begin(spec, atOnce), nil
}

// failed says whether the cluster's start has failed.
func (m *Cluster) failed() bool {
	select {
	case <-m.started:
		return m.err != nil
	default:
		return false
	}
}

// Remove deletes a cluster with its data. It succeeds if there is none.
func (s *Clusters) Remove(ctx context.Context, name string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	m := s.Find(name)
	if m == nil {
		return nil
	}
	// First, so that a partially removed cluster is never started.
	err := s.cfg.State.Update(func(d *folder.Data) error {
		d.Management = slices.DeleteFunc(d.Management, func(o folder.Cluster) bool { return o.Name == name })
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(m.stop(ctx), s.cfg.remove(name)); err != nil {
		return fmt.Errorf("delete management cluster %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clusters, name)
	return nil
}

// List returns the clusters by name.
func (s *Clusters) List() []*Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Cluster, 0, len(s.clusters))
	for _, m := range s.clusters {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Cluster) int { return a.spec.Index - b.spec.Index })
	return all
}

// Stop ends all clusters and starts no more; they stay in the state.
func (s *Clusters) Stop(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stopped = true
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, m := range s.List() {
		wg.Go(func() {
			err := m.stop(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Hold waits until no cluster is being created or removed, and lets none be until release is called.
func (s *Clusters) Hold() (release func()) {
	s.changing.Lock()
	return s.changing.Unlock
}

// Description is a management cluster in the control API.
type Description struct {
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"` // the administrator's kubeconfig, YAML
	Endpoint   string `json:"endpoint"`
}

// describe describes a cluster that has started.
func describe(m *Cluster, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	kubeconfig, err := m.plane.AdminKubeconfig()
	if err != nil {
		return nil, err
	}
	return Description{Name: m.Name(), Kubeconfig: string(kubeconfig), Endpoint: m.Endpoint()}, nil
}

// Serve adds the clusters to a control API: GET, PUT (create it, of the version of Kubernetes that the body names, or
// find it) and DELETE of /v1/management/{name}.
func (s *Clusters) Serve(mux *http.ServeMux) {
	control.Handle(mux, "GET /v1/management/{name}", func(r *http.Request) (any, error) {
		return describe(s.Get(r.Context(), r.PathValue("name")))
	})
	control.Handle(mux, "PUT /v1/management/{name}", func(r *http.Request) (any, error) {
		var wanted struct {
			Kubernetes string `json:"kubernetes"`
		}
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil && !errors.Is(err, io.EOF) {
			return nil, control.BadRequest(fmt.Errorf("read the request: %w", err))
		}
		return describe(s.Ensure(r.Context(), r.PathValue("name"), wanted.Kubernetes))
	})
	control.Handle(mux, "DELETE /v1/management/{name}", func(r *http.Request) (any, error) {
		// A removal is finished even if the client closes the connection.
		return struct{}{}, s.Remove(context.WithoutCancel(r.Context()), r.PathValue("name"))
	})
}
