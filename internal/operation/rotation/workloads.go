package rotation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

const (
	// authorityAnnotation is on the Pod template of each workload that a rotation has restarted: the fingerprint of the
	// Kubernetes API's new authority.
	authorityAnnotation = "slipway.dev/cluster-ca"
	// rootCA is the ConfigMap in each namespace from which Pods have the authority of the Kubernetes API, and its key.
	rootCA, rootCAKey = "kube-root-ca.crt", "ca.crt"
	// restartWithin is how long the restart of all workloads may take: they are restarted as their own strategy says, with
	// a grace period of half a minute for each Pod by default.
	restartWithin = time.Hour
)

// Workloads are those that were restarted, and those that were not.
type Workloads struct {
	Restarted []kube.Workload `json:"restarted"`
	// Left are Pods that use the Kubernetes API and have no workload that can be restarted, as "namespace/name".
	Left []string `json:"left"`
}

// users finds the workloads whose Pods have the authority of the Kubernetes API mounted, as every Pod with a service
// account's token has: a client reads it once, as it starts.
func users(ctx context.Context, workload *kube.Cluster) (w Workloads, err error) {
	pods := &corev1.PodList{}
	if err := workload.List(ctx, pods); err != nil {
		return w, fmt.Errorf("list the Pods: %w", err)
	}
	sets := &appsv1.ReplicaSetList{}
	if err := workload.List(ctx, sets); err != nil {
		return w, fmt.Errorf("list the ReplicaSets: %w", err)
	}
	deployments := map[types.UID]*metav1.OwnerReference{}
	for i := range sets.Items {
		deployments[sets.Items[i].UID] = metav1.GetControllerOf(&sets.Items[i])
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if !usesAPI(p) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		owner := metav1.GetControllerOf(p)
		if owner != nil && owner.Kind == "ReplicaSet" {
			owner = deployments[owner.UID]
		}
		switch {
		case owner != nil && slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, owner.Kind):
			w.Restarted = append(w.Restarted, kube.Workload{Kind: owner.Kind, Namespace: p.Namespace, Name: owner.Name})
		case owner != nil && owner.Kind == "Job": // ends by itself, and is repeated where it fails
		default:
			w.Left = append(w.Left, p.Namespace+"/"+p.Name)
		}
	}
	slices.SortFunc(w.Restarted, func(a, b kube.Workload) int {
		return strings.Compare(order(a)+a.Namespace+"/"+a.Kind+"/"+a.Name, order(b)+b.Namespace+"/"+b.Kind+"/"+b.Name)
	})
	w.Restarted = slices.Compact(w.Restarted)
	slices.Sort(w.Left)
	return w, nil
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

// restart restarts them once Pods get the new authority, and waits until they are ready and the cluster is whole.
func (in inputs) restart(ctx context.Context, say flow.Say) (Workloads, error) {
	c, a, err := in.opened(ctx, say)
	if err != nil {
		return Workloads{}, err
	}
	if err := in.awaitPublished(ctx, say, c, a); err != nil {
		return Workloads{}, err
	}
	all, err := users(ctx, c.workload)
	if err != nil {
		return Workloads{}, err
	}
	mark := fingerprint(a.kubernetes.new.Crt)
	ends := time.Now().Add(restartWithin)
	for from := 0; from < len(all.Restarted); {
		first := all.Restarted[from]
		to := from + 1
		for to < len(all.Restarted) && order(all.Restarted[to]) == order(first) &&
			all.Restarted[to].Namespace == first.Namespace {
			to++
		}
		if err := in.restartTogether(ctx, say, c.workload, all.Restarted[from:to], mark, time.Until(ends)); err != nil {
			return Workloads{}, err
		}
		from = to
	}
	return all, in.awaitWhole(ctx, say, c)
}

// awaitPublished waits until new Pods of every namespace get the new authority.
func (in inputs) awaitPublished(ctx context.Context, say flow.Say, c clusters, a authorities) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := wait.Wait{What: "kube-controller-manager to publish the new authority to Pods", Within: in.cfg.NodesTimeout.D(),
		Changes: c.workload.Changes(watching, kube.Selection{List: &corev1.ConfigMapList{}})}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		namespaces, maps := &corev1.NamespaceList{}, &corev1.ConfigMapList{}
		if err := c.workload.List(ctx, namespaces); err != nil {
			return "", fmt.Errorf("list the namespaces: %w", err)
		}
		if err := c.workload.List(ctx, maps); err != nil {
			return "", fmt.Errorf("list the ConfigMaps: %w", err)
		}
		has := map[string]bool{}
		for _, m := range maps.Items {
			has[m.Namespace] = has[m.Namespace] || m.Name == rootCA && same([]byte(m.Data[rootCAKey]), a.kubernetes.new.Crt)
		}
		var lacks []string
		for _, n := range namespaces.Items {
			if n.DeletionTimestamp == nil && !has[n.Name] {
				lacks = append(lacks, n.Name)
			}
		}
		if len(lacks) > 0 {
			return fmt.Sprintf("ConfigMap %s does not have it in %s", rootCA, strings.Join(lacks, ", ")), nil
		}
		return "", nil
	})
}

// restartTogether restarts workloads, those that were not restarted for this authority, and waits for all of them.
func (in inputs) restartTogether(ctx context.Context, say flow.Say, workload *kube.Cluster, all []kube.Workload,
	mark string, within time.Duration) error {
	for _, w := range all {
		if err := restartOne(ctx, say, workload, w, mark); err != nil {
			return err
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := workload.Changes(watching, kube.Selection{List: &corev1.PodList{},
		Options: []client.ListOption{client.InNamespace(all[0].Namespace)}})
	return wait.Wait{What: "the workloads in " + all[0].Namespace + " after their restart", Within: within,
		Changes: changes}.Until(ctx, say, func(ctx context.Context) (string, error) {
		return workload.Unready(ctx, all...)
	})
}

// restartOne does as kubectl rollout restart does.
func restartOne(ctx context.Context, say flow.Say, workload *kube.Cluster, w kube.Workload, mark string) error {
	o, template := object(w)
	err := workload.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Name}, o)
	if kube.Absent(err) || err == nil && template().Annotations[authorityAnnotation] == mark {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s in namespace %s: %w", w, w.Namespace, err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{authorityAnnotation: mark}}}}})
	if err != nil {
		return err
	}
	say("restarting %s in namespace %s, which trusts the old authority alone", w, w.Namespace)
	if err := workload.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil && !kube.Absent(err) {
		return fmt.Errorf("restart %s in namespace %s: %w", w, w.Namespace, err)
	}
	return nil
}

// object is an object to read a workload into, and its Pod template.
func object(w kube.Workload) (client.Object, func() *corev1.PodTemplateSpec) {
	switch w.Kind {
	case "DaemonSet":
		o := &appsv1.DaemonSet{}
		return o, func() *corev1.PodTemplateSpec { return &o.Spec.Template }
	case "StatefulSet":
		o := &appsv1.StatefulSet{}
		return o, func() *corev1.PodTemplateSpec { return &o.Spec.Template }
	}
	o := &appsv1.Deployment{}
	return o, func() *corev1.PodTemplateSpec { return &o.Spec.Template }
}
