package rotation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// rootCA is the ConfigMap in each namespace from which Pods have the authority of the Kubernetes API, and its key.
const rootCA, rootCAKey = "kube-root-ca.crt", "ca.crt"

// clients are what uses the Kubernetes API in the cluster: the Pods that have its authority mounted, as every Pod with
// a service account's token has. They read it once, as they start.
type clients struct {
	workloads []kube.Workload // that can be restarted, in the order in which they are
	unready   []kube.Workload // of them, that are not ready
	left      []string        // what is to be restarted by hand, as "namespace/name"
}

// findClients looks at every Pod that has not ended.
func findClients(ctx context.Context, workload *kube.Cluster) (found clients, err error) {
	pods := &corev1.PodList{}
	if err := workload.List(ctx, pods); err != nil {
		return found, fmt.Errorf("list the Pods: %w", err)
	}
	owners, err := ownersOf(ctx, workload)
	if err != nil {
		return found, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if !usesAPI(p) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		owner := owners.of(p)
		switch {
		case owner == nil:
			found.left = append(found.left, p.Namespace+"/"+p.Name)
		case owner.Kind == "Job": // ends by itself, and is repeated where it fails
		case slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, owner.Kind):
			found.workloads = append(found.workloads, kube.Workload{Kind: owner.Kind, Namespace: p.Namespace,
				Name: owner.Name})
		default:
			found.left = append(found.left, p.Namespace+"/"+p.Name)
		}
	}
	slices.SortFunc(found.workloads, func(a, b kube.Workload) int {
		key := func(w kube.Workload) string { return order(w) + w.Namespace + "/" + w.Kind + "/" + w.Name }
		return strings.Compare(key(a), key(b))
	})
	found.workloads = slices.Compact(found.workloads)
	return found, found.sort(ctx, workload)
}

// sort moves the workloads that Kubernetes does not restart by itself to what is left, and finds those that are not
// ready.
func (c *clients) sort(ctx context.Context, workload *kube.Cluster) error {
	all := c.workloads
	c.workloads = nil
	for _, w := range all {
		o, _ := object(w)
		if err := workload.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Name}, o); kube.Absent(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read %s in namespace %s: %w", w, w.Namespace, err)
		}
		if why := restartedByHand(o); why != "" {
			c.left = append(c.left, fmt.Sprintf("%s/%s (%s %s)", w.Namespace, w.Name, w.Kind, why))
			continue
		}
		c.workloads = append(c.workloads, w)
		lacks, err := workload.Unready(ctx, w)
		if err != nil {
			return err
		}
		if lacks != "" {
			c.unready = append(c.unready, w)
		}
	}
	slices.Sort(c.left)
	return nil
}

// restartedByHand says why another Pod template does not restart a workload; empty: it does.
func restartedByHand(o client.Object) string {
	switch o := o.(type) {
	case *appsv1.Deployment:
		if o.Spec.Paused {
			return "is paused"
		}
	case *appsv1.DaemonSet:
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			return "is updated OnDelete"
		}
	case *appsv1.StatefulSet:
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			return "is updated OnDelete"
		}
	}
	return ""
}

// owners are those of ReplicaSets, by the UIDs of these.
type owners map[types.UID]*metav1.OwnerReference

func ownersOf(ctx context.Context, workload *kube.Cluster) (owners, error) {
	sets := &appsv1.ReplicaSetList{}
	if err := workload.List(ctx, sets); err != nil {
		return nil, fmt.Errorf("list the ReplicaSets: %w", err)
	}
	all := owners{}
	for i := range sets.Items {
		all[sets.Items[i].UID] = metav1.GetControllerOf(&sets.Items[i])
	}
	return all, nil
}

// of is what a Pod belongs to, a Deployment in place of its ReplicaSet; nil: to nothing.
func (o owners) of(p *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(p)
	if owner != nil && owner.Kind == "ReplicaSet" && o[owner.UID] != nil {
		return o[owner.UID]
	}
	return owner
}

// order sorts the agents of the network first, which new Pods of all others need.
func order(w kube.Workload) string {
	switch {
	case w.Namespace == metav1.NamespaceSystem && w.Kind == "DaemonSet":
		return "0"
	case w.Namespace == metav1.NamespaceSystem:
		return "1"
	}
	return "2"
}

// usesAPI tells whether a Pod has the authority of the Kubernetes API mounted.
func usesAPI(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap != nil && v.ConfigMap.Name == rootCA {
			return true
		}
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ConfigMap != nil && s.ConfigMap.Name == rootCA
		})
	})
}
