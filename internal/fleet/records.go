package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// record is what is kept of a change: its ConfigMap, which outlives its Job. It is there as long as its cluster may be.
type record struct {
	change Change
	begun  time.Time // when the change's Job began; zero: it has not
}

func records(ctx context.Context, c *kube.Cluster, namespace string) (all []record, err error) {
	found := &corev1.ConfigMapList{}
	if err := c.List(ctx, found, client.InNamespace(namespace), client.HasLabels{ClusterLabel}); err != nil {
		return nil, fmt.Errorf("list the configurations of clusters in namespace %s: %w", namespace, err)
	}
	for i := range found.Items {
		change, err := readChange(&found.Items[i])
		if err != nil {
			return nil, err
		}
		one := record{change: change}
		if at := found.Items[i].Annotations[BegunAnnotation]; at != "" {
			if one.begun, err = time.Parse(time.RFC3339Nano, at); err != nil {
				return nil, fmt.Errorf("ConfigMap %s/%s: when its Job began: %w", namespace, found.Items[i].Name, err)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// applied is the newest change that was begun for a cluster of a fleet; nil: none was.
func applied(all []record, fleet, cluster string) *record {
	var newest *record
	for i, one := range all {
		if one.change.Fleet == fleet && one.change.Cluster == cluster && one.change.Action == Apply &&
			!one.begun.IsZero() && (newest == nil || one.begun.After(newest.begun)) {
			newest = &all[i]
		}
	}
	return newest
}

// LastChanges are, for each cluster that was ever changed in a fleet and not destroyed since, the change that was begun
// last: what it was made from. They are sorted by the clusters' names.
func LastChanges(ctx context.Context, c *kube.Cluster, namespace, fleet string) (changes []Change, err error) {
	all, err := records(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	jobs, err := jobsOf(ctx, c, namespace, fleet)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if last := applied(all, fleet, all[i].change.Cluster); last == &all[i] && !destroyed(all, jobs, last) {
			changes = append(changes, last.change)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Cluster, b.Cluster) })
	return changes, nil
}

// destroyed reports whether a Job that began after a cluster's last change has destroyed the cluster. The Job of an
// earlier destruction may be there, where a run was ended before it was deleted.
func destroyed(all []record, jobs []batchv1.Job, last *record) bool {
	return slices.ContainsFunc(all, func(one record) bool {
		if one.change.Fleet != last.change.Fleet || one.change.Cluster != last.change.Cluster ||
			one.change.Action != Destroy || !one.begun.After(last.begun) {
			return false
		}
		i := slices.IndexFunc(jobs, func(j batchv1.Job) bool { return j.Name == one.change.Name() })
		return i >= 0 && phaseOf(&jobs[i]) == Done
	})
}

// markBegun keeps that a change's Job begins.
func markBegun(ctx context.Context, c *kube.Cluster, namespace, name string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, BegunAnnotation,
		time.Now().UTC().Format(time.RFC3339Nano))
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write into ConfigMap %s/%s that its Job begins: %w", namespace, name, err)
	}
	return nil
}

// prune deletes what is kept of earlier changes of a rollout's clusters, but for what each was made from.
func prune(ctx context.Context, c *kube.Cluster, r Rollout, all []record) error {
	for _, one := range all {
		last := applied(all, r.Fleet, one.change.Cluster)
		if one.change.Fleet != r.Fleet || !replaced(r.Entries, one.change.Cluster, one.change.Name()) ||
			last != nil && last.change.Name() == one.change.Name() {
			continue
		}
		if err := deleteRecord(ctx, c, one); err != nil {
			return err
		}
	}
	return nil
}

// pruneDestroyed deletes what is kept of clusters that a rollout has destroyed.
func pruneDestroyed(ctx context.Context, c *kube.Cluster, r Rollout, clusters []string) error {
	all, err := records(ctx, c, r.Namespace)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.change.Fleet == r.Fleet && slices.Contains(clusters, one.change.Cluster) {
			if err := deleteRecord(ctx, c, one); err != nil {
				return err
			}
		}
	}
	return nil
}

func deleteRecord(ctx context.Context, c *kube.Cluster, one record) error {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: one.change.Namespace, Name: one.change.Name()}}
	if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
		return fmt.Errorf("delete ConfigMap %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}

// JobPods are the Pods of a Job, in the order in which they were created.
func JobPods(ctx context.Context, c *kube.Cluster, namespace, job string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace),
		client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
		return nil, fmt.Errorf("list the Pods of Job %s/%s: %w", namespace, job, err)
	}
	return inOrder(pods.Items), nil
}
