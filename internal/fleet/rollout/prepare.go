package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/fleet/objects"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Preparation is what the Jobs of a rollout are made from.
type Preparation struct {
	Changes []objects.Change // in the order of the rollout's entries
	Secrets []*corev1.Secret
	// Again also makes the Jobs anew that are done: each run looks whether its cluster is as configured.
	Again bool
}

// Entries are the rollout's.
func (p Preparation) Entries() (all []Entry) {
	for _, change := range p.Changes {
		all = append(all, Entry{Cluster: change.Cluster, Job: change.Name()})
	}
	return all
}

// WorkingError is about clusters that another change is at work on.
type WorkingError struct{ Jobs []string }

func (e *WorkingError) Error() string {
	return fmt.Sprintf("other changes of these clusters are at work, as the Jobs %s: wait for them (fleet status), or delete "+
		"them, which a run survives: its cluster's next one continues", strings.Join(e.Jobs, ", "))
}

// Prepare writes what Jobs need, and the Jobs, suspended, and makes the rollout the newest of its fleet. A Job that is
// there is left as it is, unless it has failed: it is made anew. Earlier Jobs of the same clusters that have ended, or
// have not begun, are deleted. Where one is at work nothing is changed, and the error is a WorkingError.
func Prepare(ctx context.Context, c *kube.Cluster, r Rollout, p Preparation) error {
	jobs, err := jobsOf(ctx, c, r.Namespace, r.Fleet)
	if err != nil {
		return err
	}
	r.Entries = p.Entries()
	if err := refuseWorking(jobs, r.Entries); err != nil {
		return err
	}
	for _, o := range objects.Shared(r.Namespace) {
		if err := apply(ctx, c, o); err != nil {
			return err
		}
	}
	for _, secret := range p.Secrets {
		if err := apply(ctx, c, secret); err != nil {
			return err
		}
	}
	for _, job := range jobs {
		if !superseded(&job, r.Entries, p.Again) {
			continue
		}
		// Its turn is to come again. First, so that a Job that is made anew never begins at once.
		if err := forget(ctx, c, r, job.Labels[objects.ClusterLabel]); err != nil {
			return err
		}
		if err := deleteJob(ctx, c, &job); err != nil {
			return err
		}
	}
	for _, change := range p.Changes {
		if err := ensureJob(ctx, c, change); err != nil {
			return err
		}
	}
	return Begin(ctx, c, r)
}

func jobsOf(ctx context.Context, c *kube.Cluster, namespace, fleet string) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	err := c.List(ctx, jobs, client.InNamespace(namespace), client.MatchingLabels{objects.FleetLabel: fleet},
		client.HasLabels{objects.ClusterLabel})
	if err != nil {
		return nil, fmt.Errorf("list the Jobs of fleet %s: %w", fleet, err)
	}
	return jobs.Items, nil
}

// refuseWorking refuses a second change of a cluster while the first is at work.
func refuseWorking(jobs []batchv1.Job, entries []Entry) error {
	var working []string
	for _, job := range jobs {
		is := func(e Entry) bool { return e.Cluster == job.Labels[objects.ClusterLabel] && e.Job != job.Name }
		if slices.ContainsFunc(entries, is) && phaseOf(&job).working() {
			working = append(working, job.Namespace+"/"+job.Name)
		}
	}
	if len(working) > 0 {
		return &WorkingError{working}
	}
	return nil
}

// phaseOf is the phase of a Job by itself.
func phaseOf(job *batchv1.Job) Phase { return statusOf(Entry{}, job, nil, false).Phase }

// superseded reports whether a Job is to be deleted: an earlier one of a cluster that is changed, or one that is to run
// again.
func superseded(job *batchv1.Job, entries []Entry, again bool) bool {
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Cluster == job.Labels[objects.ClusterLabel] })
	if i < 0 {
		return false
	}
	phase := phaseOf(job)
	return entries[i].Job != job.Name || phase == Failed || again && phase == Done
}

func deleteJob(ctx context.Context, c *kube.Cluster, job *batchv1.Job) error {
	err := c.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// forget takes a cluster out of those whose turn has come.
func forget(ctx context.Context, c *kube.Cluster, r Rollout, cluster string) error {
	s, err := read(ctx, c, r.Namespace, r.Fleet)
	if err != nil || !slices.Contains(s.Released, cluster) {
		return ignoreNone(err)
	}
	s.Released = slices.DeleteFunc(s.Released, func(name string) bool { return name == cluster })
	_, err = s.release(ctx, c, nil)
	return err
}

// ensureJob creates a change's Job and its ConfigMap, which goes with the Job.
func ensureJob(ctx context.Context, c *kube.Cluster, change objects.Change) error {
	files, err := change.ConfigMap()
	if err != nil {
		return err
	}
	job := change.Job()
	err = c.Create(ctx, job)
	if apierrors.IsAlreadyExists(err) {
		err = c.Get(ctx, client.ObjectKeyFromObject(job), job)
	}
	if err != nil {
		return fmt.Errorf("create Job %s/%s: %w", change.Namespace, change.Name(), err)
	}
	files.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID}}
	return apply(ctx, c, files)
}

// apply is an ensure: server-side apply, as the owner of what the object has.
func apply(ctx context.Context, c *kube.Cluster, o client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("convert %s: %w", kube.Describe(o), err)
	}
	delete(content, "status")
	return c.Apply(ctx, &unstructured.Unstructured{Object: content})
}

// Clusters are the names of all clusters that were ever changed in a fleet, and not destroyed since.
func Clusters(ctx context.Context, c *kube.Cluster, namespace, fleet string) (names []string, err error) {
	jobs, err := jobsOf(ctx, c, namespace, fleet)
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		name := job.Labels[objects.ClusterLabel]
		if job.Labels[objects.ActionLabel] == objects.Destroy && phaseOf(&job) == Done || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Revision identifies the rollout by its Jobs.
func (p Preparation) Revision() string {
	sum := sha256.Sum256(fmt.Append(nil, p.Entries()))
	return hex.EncodeToString(sum[:])[:10]
}

// Coordinate creates the Job that advances a rollout. One that is there and has not ended is left as it is.
func Coordinate(ctx context.Context, c *kube.Cluster, job *batchv1.Job) error {
	is := &batchv1.Job{}
	err := c.Get(ctx, client.ObjectKeyFromObject(job), is)
	switch {
	case err == nil && (phaseOf(is) == Done || phaseOf(is) == Failed):
		if err := deleteJob(ctx, c, is); err != nil {
			return err
		}
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	if err := c.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// Last is the newest change of a cluster, read from its Job.
func Last(ctx context.Context, c *kube.Cluster, namespace, fleet, cluster string) (objects.Change, error) {
	jobs, err := jobsOf(ctx, c, namespace, fleet)
	if err != nil {
		return objects.Change{}, err
	}
	jobs = slices.DeleteFunc(jobs, func(j batchv1.Job) bool { return j.Labels[objects.ClusterLabel] != cluster })
	if len(jobs) == 0 {
		return objects.Change{}, fmt.Errorf("cluster %s of fleet %s has no Job: it was never applied, or its Job was deleted",
			cluster, fleet)
	}
	newest := slices.MaxFunc(jobs, func(a, b batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	files := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(&newest), files); err != nil {
		return objects.Change{}, fmt.Errorf("read the configuration that was last applied to cluster %s: %w", cluster, err)
	}
	return objects.Read(&newest, files)
}

// Pods are the Pods of a rollout with one entry, in the order in which they were created.
func Pods(ctx context.Context, c *kube.Cluster, r Rollout) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := c.List(ctx, pods, client.InNamespace(r.Namespace), client.MatchingLabels{batchv1.JobNameLabel: r.Entries[0].Job})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of Job %s/%s: %w", r.Namespace, r.Entries[0].Job, err)
	}
	return inOrder(pods.Items), nil
}
