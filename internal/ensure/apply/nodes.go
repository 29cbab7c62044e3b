package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/platform"
)

// FreePods deletes the Pods of a server that does not exist any more, so that they start elsewhere at once. Kubernetes
// by itself leaves them there for five minutes, in case that the server comes back, and in a cluster that manages
// itself the controllers of Cluster API may be among them: meanwhile no controller would delete the Machine or create
// another.
func FreePods(ctx context.Context, tools platform.Tools, say flow.Say, workload *kube.Cluster, name string) error {
	node := &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil || node.Spec.ProviderID == "" {
		return client.IgnoreNotFound(err)
	}
	gone, err := hetzner.ServerGone(ctx, tools.Hetzner, node.Spec.ProviderID)
	if err != nil || !gone {
		return err
	}
	// The scheduler takes the node for a working one until its lease has expired: it would bind the new Pods there.
	cordon := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	if err := workload.Patch(ctx, node, cordon); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("cordon node %s, whose server is gone: %w", name, err))
	}
	pods := &corev1.PodList{}
	if err := workload.List(ctx, pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return fmt.Errorf("list the Pods of node %s: %w", name, err)
	}
	if err := EndPods(ctx, workload, pods.Items); err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		say("server %s does not exist any more: its %d Pods start on other nodes", name, len(pods.Items))
	}
	return nil
}

// RemoveNode removes a node whose server is gone.
func RemoveNode(ctx context.Context, say flow.Say, workload *kube.Cluster, n *corev1.Node) error {
	say("removing node %s, whose server is gone", n.Name)
	none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(workload.Patch(ctx, n, none)); err != nil {
		return fmt.Errorf("take the finalizers of node %s away: %w", n.Name, err)
	}
	if err := client.IgnoreNotFound(workload.Delete(ctx, n)); err != nil {
		return fmt.Errorf("delete node %s: %w", n.Name, err)
	}
	return nil
}

// EndPods deletes Pods of nodes whose servers are gone. Their grace period is 0, as no kubelet is left that could end
// them in good order.
func EndPods(ctx context.Context, workload *kube.Cluster, pods []corev1.Pod) error {
	for i := range pods {
		p := &pods[i]
		if err := client.IgnoreNotFound(workload.Delete(ctx, p, client.GracePeriodSeconds(0),
			client.Preconditions{UID: &p.UID})); err != nil {
			return fmt.Errorf("delete Pod %s/%s of node %s, whose server is gone: %w", p.Namespace, p.Name, p.Spec.NodeName, err)
		}
	}
	return nil
}
