package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/egress"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// Cluster is a management cluster: a real control plane with one Node, on which Pods run as processes. It takes the
// place of the kind cluster.
type Cluster struct {
	cfg  Config
	spec folder.Cluster
	// beforePods returns when the cluster's Pods may start.
	beforePods func(context.Context)

	started chan struct{} // closed when start has returned, with or without an error
	err     error         // valid from then on, as the fields below

	plane  *plane.Single
	admin  *rest.Config
	expose io.Closer
	// end stops the kubelet and the egress proxy; ended waits for them.
	end   context.CancelFunc
	ended sync.WaitGroup
}

// Name returns the cluster's name.
func (m *Cluster) Name() string     { return m.spec.Name }
func (m *Cluster) nodeName() string { return m.spec.Name + "-control-plane" }
func (m *Cluster) address() string {
	return m.cfg.State.Slot().ManagementAddress(m.spec.Index).String()
}

// Started says whether the cluster's start has ended, and its error.
func (m *Cluster) Started() (ended bool, err error) {
	select {
	case <-m.started:
		return true, m.err
	default:
		return false, nil
	}
}

// Plane returns the control plane of a cluster that is Ready.
func (m *Cluster) Plane() *plane.Plane { return m.plane.Plane }

// Endpoint is the URL of the cluster's kube-apiserver.
func (m *Cluster) Endpoint() string { return plane.Endpoint(m.address(), m.cfg.APIPort) }

// Ready says whether the cluster has started.
func (m *Cluster) Ready() bool {
	ended, err := m.Started()
	return ended && err == nil
}

func (m *Cluster) dir() string { return m.cfg.path("management", m.spec.Name) }

// start creates the cluster's processes, on the data of an earlier start if there are any. After an error, stop ends
// what was started.
func (m *Cluster) start(ctx context.Context) error {
	cfg := m.cfg
	if err := os.MkdirAll(cfg.path("clusters", m.Name()), 0o700); err != nil {
		return err
	}
	var err error
	if m.expose, err = cfg.Network.Expose(ctx, net.JoinHostPort(m.address(), cmp.Or(cfg.APIPort, plane.APIPort))); err != nil {
		return err
	}
	kubernetes, err := cfg.kubernetesFor(m.spec)
	if err != nil {
		return err
	}
	services := egress.NewServices(m.Name(), cfg.Registry, cfg.Outages)
	socket, err := m.startEgress(ctx, services)
	if err != nil {
		return err
	}
	m.plane, err = plane.StartSingle(ctx, cfg.Processes, plane.SingleConfig{
		Cluster: m.Name(), Bin: cfg.Bin, Kubernetes: kubernetes, Dir: m.dir(), LogDir: cfg.path("logs", m.Name()),
		Address: m.address(), Port: cfg.APIPort, Durable: cfg.Durable,
		ServiceCIDR:  cfg.State.Slot().ManagementServiceCIDR().String(),
		EgressSocket: socket,
		AuditLog:     cfg.path("clusters", m.Name(), "audit.jsonl"),
		Labels:       map[string]string{proc.LabelCluster: m.Name()},
	})
	if err != nil {
		return err
	}
	admin, err := m.access("lab-admin", "system:masters")
	if err != nil {
		return err
	}
	m.admin = admin
	if err := m.watchServices(ctx, services, admin); err != nil {
		return err
	}
	m.beforePods(ctx)
	if err := m.startKubelet(ctx, admin); err != nil {
		return err
	}
	if err := m.plane.Ready(ctx); err != nil {
		return err
	}
	return m.awaitNode(ctx, admin)
}

// kubernetesFor is the folder of the Kubernetes programs of a cluster. A cluster that records no version was created by
// an older lab, of the version that was its first.
func (c Config) kubernetesFor(spec folder.Cluster) (string, error) {
	if spec.Kubernetes == "" {
		return c.Kubernetes.List()[0].Bin, nil
	}
	set, err := c.Kubernetes.Choose(spec.Kubernetes)
	return set.Bin, err
}

// startEgress serves the proxy through which the kube-apiserver reaches Services.
func (m *Cluster) startEgress(ctx context.Context, services *egress.Services) (socket string, err error) {
	socket = filepath.Join(m.cfg.Sockets, fmt.Sprintf("egress-%d.sock", m.spec.Index))
	l, err := egress.Listen(socket)
	if err != nil {
		return "", err
	}
	proxy := egress.New(services, m.cfg.Log.With("cluster", m.Name()))
	m.ended.Go(func() {
		if err := proxy.Serve(ctx, l); err != nil {
			m.cfg.Log.Error("an egress proxy ended", "cluster", m.Name(), "reason", err)
		}
	})
	return socket, nil
}

func (m *Cluster) watchServices(ctx context.Context, services *egress.Services, admin *rest.Config) error {
	cs, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	m.ended.Go(func() {
		if err := services.Watch(ctx, cs); err != nil && ctx.Err() == nil {
			m.cfg.Log.Error("Services are not watched", "cluster", m.Name(), "reason", err)
		}
	})
	return nil
}

// Admin is the daemon's own access to a cluster that is Ready.
func (m *Cluster) Admin() *rest.Config { return m.admin }

// access returns a client configuration with a new certificate for a user in groups.
func (m *Cluster) access(user string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := m.plane.Kubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(kubeconfig)
}

// stop ends the cluster's processes and keeps its data.
func (m *Cluster) stop(ctx context.Context) error {
	m.end()
	<-m.started
	if err := waitFor(ctx, &m.ended); err != nil {
		return fmt.Errorf("the Pods of cluster %s have not all ended: %w", m.Name(), err)
	}
	var errs []error
	if m.plane != nil {
		errs = append(errs, m.plane.Stop(ctx))
	}
	if m.expose != nil {
		errs = append(errs, m.expose.Close())
	}
	return errors.Join(errs...)
}

// waitFor waits for a group's goroutines, but not longer than ctx.
func waitFor(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remove deletes the data of a stopped cluster. Its audit logs and the logs of its programs are kept for diagnosis.
func (c Config) remove(name string) error { return os.RemoveAll(c.path("management", name)) }
