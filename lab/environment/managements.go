package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
)

// managements are the lab's management clusters.
type managements struct {
	life context.Context // until the lab ends
	lab  *Lab

	changing sync.Mutex // held while a cluster is created or removed; guards stopped
	stopped  bool

	mu       sync.Mutex
	clusters map[string]*management
}

var (
	errNotFound = errors.New("there is no such management cluster")
	errStopping = errors.New("the lab is stopping")
)

// requestError is an error that the client caused.
type requestError struct{ error }

func newManagements(life context.Context, lab *Lab) *managements {
	return &managements{life: life, lab: lab, clusters: map[string]*management{}}
}

// resume starts, in the background, every recorded cluster.
func (s *managements) resume() {
	for _, spec := range s.lab.state.management() {
		s.begin(spec, s.lab.awaitServed)
	}
}

// begin starts a cluster in the background; its Pods only after beforePods.
func (s *managements) begin(spec managementSpec, beforePods func(context.Context)) *management {
	ctx, end := context.WithCancel(s.life)
	m := &management{lab: s.lab, spec: spec, beforePods: beforePods, started: make(chan struct{}), end: end}
	s.mu.Lock()
	s.clusters[spec.Name] = m
	s.mu.Unlock()
	go func() {
		defer close(m.started)
		if m.err = m.start(ctx); m.err != nil {
			s.lab.cfg.Log.Error("a management cluster did not start", "cluster", spec.Name, "reason", m.err)
			return
		}
		s.lab.cfg.Log.Info("a management cluster is ready", "cluster", spec.Name, "endpoint", m.plane.Endpoint())
	}()
	return m
}

// atOnce lets the Pods of a cluster start without a wait.
func atOnce(context.Context) {}

func (s *managements) find(name string) *management {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[name]
}

// get returns a cluster after its start has ended.
func (s *managements) get(ctx context.Context, name string) (*management, error) {
	m := s.find(name)
	if m == nil {
		return nil, errNotFound
	}
	return m, m.await(ctx)
}

// await waits until the cluster's start has ended, and returns its error.
func (m *management) await(ctx context.Context) error {
	select {
	case <-m.started:
		if m.err != nil {
			return fmt.Errorf("management cluster %s: %w", m.name(), m.err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ensure creates a cluster or finds it, and returns it when it is ready. If the client gives up, the start continues; a
// failed start is tried again.
func (s *managements) ensure(ctx context.Context, name string) (*management, error) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return nil, requestError{fmt.Errorf("management cluster name %q: %s", name, problems[0])}
	}
	m, err := s.ensureBegun(ctx, name)
	if err != nil {
		return nil, err
	}
	return m, m.await(ctx)
}

func (s *managements) ensureBegun(ctx context.Context, name string) (*management, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.stopped {
		return nil, errStopping
	}
	if m := s.find(name); m != nil {
		if !m.failed() {
			return m, nil
		}
		if err := m.stop(ctx); err != nil {
			return nil, err
		}
		return s.begin(m.spec, atOnce), nil
	}
	spec := managementSpec{Name: name}
	err := s.lab.state.update(func(d *stateData) error {
		for i := 1; i <= maxManagement; i++ {
			if !slices.ContainsFunc(d.Management, func(o managementSpec) bool { return o.Index == i }) {
				spec.Index = i
				d.Management = append(d.Management, spec)
				return nil
			}
		}
		return fmt.Errorf("all %d addresses of management clusters are in use", maxManagement)
	})
	if err != nil {
		return nil, err
	}
	// A lab that ended while it removed a cluster of this name may have left a part of it.
	if err := s.lab.removeManagement(name); err != nil {
		return nil, err
	}
	return s.begin(spec, atOnce), nil
}

// failed says whether the cluster's start has failed.
func (m *management) failed() bool {
	select {
	case <-m.started:
		return m.err != nil
	default:
		return false
	}
}

// remove deletes a cluster with its data. It succeeds if there is none.
func (s *managements) remove(ctx context.Context, name string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	m := s.find(name)
	if m == nil {
		return nil
	}
	// First, so that a partially removed cluster is never started.
	err := s.lab.state.update(func(d *stateData) error {
		d.Management = slices.DeleteFunc(d.Management, func(o managementSpec) bool { return o.Name == name })
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(m.stop(ctx), s.lab.removeManagement(name)); err != nil {
		return fmt.Errorf("delete management cluster %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clusters, name)
	return nil
}

// list returns the clusters by name.
func (s *managements) list() []*management {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*management, 0, len(s.clusters))
	for _, m := range s.clusters {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *management) int { return a.spec.Index - b.spec.Index })
	return all
}

// stop ends all clusters and starts no more; they stay in the state.
func (s *managements) stop(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stopped = true
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, m := range s.list() {
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
