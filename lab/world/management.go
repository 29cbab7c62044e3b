package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// management is a management cluster: a real control plane with one Node, on which Pods run as processes. It takes the place
// that kind's cluster has on a developer's machine.
type management struct {
	world *World
	spec  managementSpec

	started chan struct{} // closed when start has ended, either way
	err     error         // valid from then on, as the fields below

	plane  *plane.Single
	expose io.Closer
	// end stops the kubelet and the egress proxy; ended waits for them.
	end   context.CancelFunc
	ended sync.WaitGroup
}

const (
	// nodeDeadline bounds the wait for the cluster's Node, whose kubelet runs in this process.
	nodeDeadline = time.Minute
	nodePoll     = 100 * time.Millisecond
)

func (m *management) name() string     { return m.spec.Name }
func (m *management) nodeName() string { return m.spec.Name + "-control-plane" }
func (m *management) address() string {
	return m.world.state.slot().managementAddress(m.spec.Index).String()
}
func (m *management) dir() string { return m.world.path("management", m.spec.Name) }

// start brings the cluster up, or back with all that it held. Whatever it started before a failure, stop ends.
func (m *management) start(ctx context.Context) error {
	w := m.world
	if err := os.MkdirAll(w.path("clusters", m.name()), 0o700); err != nil {
		return err
	}
	var err error
	if m.expose, err = w.cfg.Network.Expose(ctx, net.JoinHostPort(m.address(), plane.APIPort)); err != nil {
		return err
	}
	m.plane, err = plane.StartSingle(ctx, w.processes, plane.SingleConfig{
		Cluster: m.name(), Bin: w.cfg.Bin, Dir: m.dir(), LogDir: w.path("logs", m.name()),
		Address:     m.address(),
		ServiceCIDR: w.state.slot().managementServiceCIDR().String(),
		AuditLog:    w.path("clusters", m.name(), "audit.jsonl"),
		Labels:      map[string]string{proc.LabelCluster: m.name()},
	})
	if err != nil {
		return err
	}
	admin, err := m.access("kubernetes-admin", "system:masters")
	if err != nil {
		return err
	}
	if err := m.startKubelet(ctx, admin); err != nil {
		return err
	}
	if err := m.plane.Ready(ctx); err != nil {
		return err
	}
	return m.awaitNode(ctx, admin)
}

// access makes a client's configuration with a new certificate for user in groups.
func (m *management) access(user string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := m.plane.Kubeconfig(user, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(kubeconfig)
}

func (m *management) startKubelet(ctx context.Context, admin *rest.Config) error {
	w := m.world
	client, err := m.access("system:node:"+m.nodeName(), "system:nodes")
	if err != nil {
		return err
	}
	cs, err := kubernetes.NewForConfig(client)
	if err != nil {
		return err
	}
	version, err := cs.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the apiserver for its version: %w", err)
	}
	k, err := kubelet.New(kubelet.Config{
		Cluster: m.name(), Node: m.nodeName(),
		// As kind's only node: a control plane node without a taint.
		Labels:         map[string]string{"node-role.kubernetes.io/control-plane": ""},
		InternalIP:     m.address(),
		ProviderID:     "lab://" + m.name() + "/" + m.nodeName(),
		KubeletVersion: version.GitVersion,
		Client:         client, Admin: admin,
		Dir:       filepath.Join(m.dir(), "kubelet"),
		Processes: w.processes, Programs: w.programs, Bin: w.cfg.Bin, Lab: w.cfg.Lab, Registry: w.registry,
		PodEnv:  w.podEnv(),
		Network: kubelet.NetworkFromStart,
		Latency: w.cfg.Latency.kubelet(),
		Log:     w.cfg.Log,
	})
	if err != nil {
		return err
	}
	m.ended.Go(func() {
		if err := k.Run(ctx); err != nil {
			w.cfg.Log.Error("a kubelet ended", "cluster", m.name(), "reason", err)
		}
	})
	return nil
}

// awaitNode waits until the Node is Ready.
func (m *management) awaitNode(ctx context.Context, admin *rest.Config) error {
	cs, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nodeDeadline, fmt.Errorf("not Ready within %s", nodeDeadline))
	defer cancel()
	ticker := time.NewTicker(nodePoll)
	defer ticker.Stop()
	last := "nothing"
	for {
		node, err := cs.CoreV1().Nodes().Get(ctx, m.nodeName(), metav1.GetOptions{})
		switch {
		case err == nil && nodeReady(node):
			return nil
		case err == nil:
			last = fmt.Sprintf("conditions %v", node.Status.Conditions)
		case apierrors.IsNotFound(err):
			last = "the kubelet has not registered it"
		case ctx.Err() == nil:
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Node %s: %w; last seen: %s", m.nodeName(), context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// stop ends the cluster's processes; its data stay.
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

// removeManagement deletes what a stopped cluster was. Its audit logs and those of its programs stay, for whoever wants to know.
func (w *World) removeManagement(name string) error { return os.RemoveAll(w.path("management", name)) }
