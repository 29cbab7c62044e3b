package management

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/lab/kubelet"
)

const (
	// nodeDeadline bounds the wait for the cluster's Node, whose kubelet runs in this process.
	nodeDeadline = time.Minute
	nodePoll     = 100 * time.Millisecond
)

// startKubelet starts the cluster's one Node.
func (m *Cluster) startKubelet(ctx context.Context, admin *rest.Config) error {
	cfg := m.cfg
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
		Cluster: m.Name(), Node: m.nodeName(),
		// Like the node of kind: a control plane node without a taint.
		Labels:         map[string]string{"node-role.kubernetes.io/control-plane": ""},
		InternalIP:     m.address(),
		ProviderID:     cfg.ProviderID + m.Name() + "/" + m.nodeName(),
		KubeletVersion: version.GitVersion,
		Client:         client, Admin: admin,
		Dir:       filepath.Join(m.dir(), "kubelet"),
		Processes: cfg.Processes, Programs: cfg.Programs, Bin: cfg.Bin, Lab: cfg.Lab, Registry: cfg.Registry,
		PodEnv: cfg.PodEnv, Sandboxes: cfg.Sandboxes, RefuseUnmapped: cfg.RefuseUnmapped,
		Network: kubelet.NetworkFromStart,
		Latency: cfg.Latency,
		Log:     cfg.Log,
	})
	if err != nil {
		return err
	}
	m.ended.Go(func() {
		if err := k.Run(ctx); err != nil {
			cfg.Log.Error("a kubelet ended", "cluster", m.Name(), "reason", err)
		}
	})
	return nil
}

// awaitNode waits until the Node is Ready and accepts Pods.
func (m *Cluster) awaitNode(ctx context.Context, admin *rest.Config) error {
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
			last = fmt.Sprintf("conditions %v, taints %v", node.Status.Conditions, node.Spec.Taints)
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

// nodeReady says whether the Node is Ready and the node lifecycle controller has removed its taint.
func nodeReady(node *corev1.Node) bool {
	tainted := slices.ContainsFunc(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	return !tainted && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
