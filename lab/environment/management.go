package environment

import (
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
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// management is a management cluster: a real control plane with one Node, on which Pods run as processes. It takes the
// place of the kind cluster.
type management struct {
	lab  *Lab
	spec managementSpec
	// beforePods returns when the cluster's Pods may start.
	beforePods func(context.Context)

	started chan struct{} // closed when start has returned, with or without an error
	err     error         // valid from then on, as the fields below

	plane  *plane.Single
	expose io.Closer
	// end stops the kubelet and the egress proxy; ended waits for them.
	end   context.CancelFunc
	ended sync.WaitGroup
}

func (m *management) name() string     { return m.spec.Name }
func (m *management) nodeName() string { return m.spec.Name + "-control-plane" }
func (m *management) address() string {
	return m.lab.state.slot().managementAddress(m.spec.Index).String()
}

// ready says whether the cluster has started.
func (m *management) ready() bool {
	select {
	case <-m.started:
		return m.err == nil
	default:
		return false
	}
}

func (m *management) dir() string { return m.lab.path("management", m.spec.Name) }

// start creates the cluster's processes, on the data of an earlier start if there are any. After an error, stop ends
// what was started.
func (m *management) start(ctx context.Context) error {
	lab := m.lab
	if err := os.MkdirAll(lab.path("clusters", m.name()), 0o700); err != nil {
		return err
	}
	var err error
	if m.expose, err = lab.cfg.Network.Expose(ctx, net.JoinHostPort(m.address(), plane.APIPort)); err != nil {
		return err
	}
	services := egress.NewServices(m.name(), lab.registry, lab.outages)
	socket, err := m.startEgress(ctx, services)
	if err != nil {
		return err
	}
	m.plane, err = plane.StartSingle(ctx, lab.processes, plane.SingleConfig{
		Cluster: m.name(), Bin: lab.cfg.Bin, Dir: m.dir(), LogDir: lab.path("logs", m.name()),
		Address:      m.address(),
		ServiceCIDR:  lab.state.slot().managementServiceCIDR().String(),
		EgressSocket: socket,
		AuditLog:     lab.path("clusters", m.name(), "audit.jsonl"),
		Labels:       map[string]string{proc.LabelCluster: m.name()},
	})
	if err != nil {
		return err
	}
	admin, err := m.access("lab-admin", "system:masters")
	if err != nil {
		return err
	}
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

// startEgress serves the proxy through which the kube-apiserver reaches Services.
func (m *management) startEgress(ctx context.Context, services *egress.Services) (socket string, err error) {
	socket = filepath.Join(m.lab.sockets, fmt.Sprintf("egress-%d.sock", m.spec.Index))
	l, err := egress.Listen(socket)
	if err != nil {
		return "", err
	}
	proxy := egress.New(services, m.lab.cfg.Log.With("cluster", m.name()))
	m.ended.Go(func() {
		if err := proxy.Serve(ctx, l); err != nil {
			m.lab.cfg.Log.Error("an egress proxy ended", "cluster", m.name(), "reason", err)
		}
	})
	return socket, nil
}

func (m *management) watchServices(ctx context.Context, services *egress.Services, admin *rest.Config) error {
	cs, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	m.ended.Go(func() {
		if err := services.Watch(ctx, cs); err != nil && ctx.Err() == nil {
			m.lab.cfg.Log.Error("Services are not watched", "cluster", m.name(), "reason", err)
		}
	})
	return nil
}

// access returns a client configuration with a new certificate for a user in groups.
func (m *management) access(user string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := m.plane.Kubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(kubeconfig)
}

// stop ends the cluster's processes and keeps its data.
func (m *management) stop(ctx context.Context) error {
	m.end()
	<-m.started
	if err := waitFor(ctx, &m.ended); err != nil {
		return fmt.Errorf("the Pods of cluster %s have not all ended: %w", m.name(), err)
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

// removeManagement deletes the data of a stopped cluster. Its audit logs and the logs of its programs are kept for
// diagnosis.
func (lab *Lab) removeManagement(name string) error {
	return os.RemoveAll(lab.path("management", name))
}
