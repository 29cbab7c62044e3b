package fleet

import (
	"context"
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

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Preparation is what the Jobs of a rollout are made from.
type Preparation struct {
	Changes []Change // in the order of the rollout's entries
	Access  []Access // of the clusters
	Secrets []*corev1.Secret
	// MoveStates brings the states of the clusters to where their Jobs look for them; nil: they are there.
	MoveStates func(context.Context) error
	// Providers is the Job that installs the providers before any cluster's begins, and ProvidersFiles what it reads;
	// nil: none.
	Providers      *batchv1.Job
	ProvidersFiles *corev1.ConfigMap
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

// Clusters are the names of the clusters that are changed.
func (p Preparation) Clusters() (names []string) {
	for _, change := range p.Changes {
		names = append(names, change.Cluster)
	}
	return names
}

// Prepare writes what Jobs need, and the Jobs, suspended, and makes the rollout the newest of its fleet. A Job that is
// there is left as it is, unless it has failed, or waits with another consent: it is made anew. Earlier Jobs of the
// same clusters that have ended, or have not begun, are deleted. It is refused, and nothing is changed, where one is at
// work, where the newest rollout has not ended for clusters that this one leaves out, and where another fleet has
// changed one of the clusters. The error wraps errMeanwhile where another process was faster.
func Prepare(ctx context.Context, c *kube.Cluster, r Rollout, p Preparation) error {
	r.Entries = p.Entries()
	if p.Providers != nil {
		r.Providers = p.Providers.Name
	}
	seen, err := readStored(ctx, c, r.Namespace, r.Fleet)
	if ignoreNone(err) != nil {
		return err
	}
	preparation := &preparing{Rollout: r, cluster: c, seen: seen.Rollout, exists: err == nil}
	jobs, err := jobsOf(ctx, c, r.Namespace, r.Fleet)
	if err != nil {
		return err
	}
	kept, err := records(ctx, c, r.Namespace)
	if err != nil {
		return err
	}
	if err := preparation.refuse(jobs, kept); err != nil {
		return err
	}
	if err := ensureShared(ctx, c, r.Namespace, p.Access, p.Secrets); err != nil {
		return err
	}
	if p.MoveStates != nil {
		if err := p.MoveStates(ctx); err != nil {
			return err
		}
	}
	if err := ensureProviders(ctx, c, p); err != nil {
		return err
	}
	for _, change := range p.Changes {
		if err := preparation.remake(ctx, change, jobs, p.Again); err != nil {
			return err
		}
		if err := ensureJob(ctx, c, change); err != nil {
			return err
		}
	}
	if err := preparation.begin(ctx); err != nil {
		return err
	}
	// Last: until here everything that was known of a cluster is kept.
	for _, job := range jobs {
		if replaced(r.Entries, job.Labels[ClusterLabel], job.Name) {
			if err := deleteJob(ctx, c, &job); err != nil {
				return err
			}
		}
	}
	return prune(ctx, c, r, kept)
}

// preparing is a rollout that is being prepared.
type preparing struct {
	Rollout
	cluster *kube.Cluster
	seen    Rollout // the newest rollout of the fleet, from which is decided
	exists  bool    // there is one
}

// refuse refuses what would do harm, before anything is written.
func (p *preparing) refuse(jobs []batchv1.Job, kept []record) error {
	var working, foreign, unfinished []string
	for _, job := range jobs {
		if replaced(p.Entries, job.Labels[ClusterLabel], job.Name) && phaseOf(&job).working() {
			working = append(working, job.Namespace+"/"+job.Name)
		}
	}
	for _, one := range kept {
		if one.change.Fleet != p.Fleet && p.has(one.change.Cluster) {
			foreign = append(foreign, one.change.Cluster)
		}
	}
	for _, e := range p.seen.Entries {
		i := slices.IndexFunc(jobs, func(j batchv1.Job) bool { return j.Name == e.Job })
		if p.seen.Stopped || p.has(e.Cluster) || i < 0 {
			continue
		}
		if phase := phaseOf(&jobs[i]); phase != Done && phase != Failed {
			unfinished = append(unfinished, e.Cluster)
		}
	}
	switch {
	case len(working) > 0:
		return fmt.Errorf("other changes of these clusters are at work, as the Jobs %s: wait until they have ended "+
			"(fleet status)", strings.Join(working, ", "))
	case len(foreign) > 0: // they would share their states
		slices.Sort(foreign)
		return fmt.Errorf("another fleet in this namespace has %s: clusters of one namespace need names of their own; "+
			"rename them, or give this fleet another namespace", strings.Join(slices.Compact(foreign), ", "))
	case len(unfinished) > 0:
		return fmt.Errorf("the rollout that is under way has not ended for %s, and this one would leave them out: wait "+
			"until it has ended, or stop it (fleet stop), or apply all clusters", strings.Join(unfinished, ", "))
	}
	return nil
}

// has reports whether a rollout changes a cluster.
func (r Rollout) has(cluster string) bool {
	return slices.ContainsFunc(r.Entries, func(e Entry) bool { return e.Cluster == cluster })
}

// ensureShared writes what Jobs use that outlives them. A namespace that is there stays as it is: it may be others',
// too.
func ensureShared(ctx context.Context, c *kube.Cluster, namespace string, access []Access,
	secrets []*corev1.Secret) error {
	all := Shared(namespace)
	for _, one := range access {
		all = append(all, one.Objects()...)
	}
	for _, secret := range secrets {
		all = append(all, secret)
	}
	for _, o := range all {
		if _, is := o.(*corev1.Namespace); is {
			if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create namespace %s: %w", o.GetName(), err)
			}
			continue
		}
		if err := Ensure(ctx, c, o); err != nil {
			return err
		}
	}
	return nil
}

// ensureProviders creates the Job that installs the providers. One that has failed is made anew, and with Again also
// one that is done.
func ensureProviders(ctx context.Context, c *kube.Cluster, p Preparation) error {
	if p.Providers == nil {
		return nil
	}
	if err := Ensure(ctx, c, p.ProvidersFiles); err != nil {
		return err
	}
	return ensureCoordinator(ctx, c, p.Providers, func(phase Phase) bool {
		return phase == Failed || phase == Done && p.Again
	})
}

// remake deletes the Job of a change that is to be made anew under its name.
func (p *preparing) remake(ctx context.Context, change Change, jobs []batchv1.Job, again bool) error {
	i := slices.IndexFunc(jobs, func(j batchv1.Job) bool { return j.Name == change.Name() })
	if i < 0 {
		return nil
	}
	job := &jobs[i]
	switch phase := phaseOf(job); {
	case phase == Failed, again && phase == Done, phase == Waiting && consents(job) != change.Consent:
	default:
		return nil
	}
	// Its turn is to come again. First, so that a Job that is made anew never begins at once.
	if err := p.forget(ctx, change.Cluster); err != nil {
		return err
	}
	return deleteJob(ctx, p.cluster, job)
}

// replaced reports whether a Job, or what is kept of it, is that of an earlier change of a cluster.
func replaced(entries []Entry, cluster, job string) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Cluster == cluster && e.Job != job })
}

func jobsOf(ctx context.Context, c *kube.Cluster, namespace, fleet string) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := c.List(ctx, jobs, append(ofFleet(namespace, fleet), client.HasLabels{ClusterLabel})...); err != nil {
		return nil, fmt.Errorf("list the Jobs of fleet %s: %w", fleet, err)
	}
	return jobs.Items, nil
}

// phaseOf is the phase of a Job by itself.
func phaseOf(job *batchv1.Job) Phase { return statusOf(Entry{}, job, nil, false).Phase }

func deleteJob(ctx context.Context, c *kube.Cluster, job *batchv1.Job) error {
	err := c.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// forget takes a cluster out of those whose turn has come, in the rollout that the preparation has seen.
func (p *preparing) forget(ctx context.Context, cluster string) error {
	for {
		s, err := readStored(ctx, p.cluster, p.Namespace, p.Fleet)
		if err != nil || !slices.Contains(s.Released, cluster) {
			return ignoreNone(err)
		}
		own := s.as(p.seen)
		s.Released = slices.DeleteFunc(slices.Clone(s.Released), func(name string) bool { return name == cluster })
		again, err := s.release(ctx, p.cluster, nil)
		if !again && err == nil && own {
			p.seen.Released = s.Released
		}
		if !again || err != nil {
			return err
		}
	}
}

// ensureJob creates what is kept of a change, and then its Job.
func ensureJob(ctx context.Context, c *kube.Cluster, change Change) error {
	files, err := change.ConfigMap()
	if err != nil {
		return err
	}
	if err := Ensure(ctx, c, files); err != nil {
		return err
	}
	if err := c.Create(ctx, change.Job()); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Job %s/%s: %w", change.Namespace, change.Name(), err)
	}
	return nil
}

// Ensure applies objects as the owner of what they have.
func Ensure(ctx context.Context, c *kube.Cluster, all ...client.Object) error {
	for _, o := range all {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("convert %s: %w", kube.Describe(o), err)
		}
		delete(content, "status")
		if err := c.Apply(ctx, &unstructured.Unstructured{Object: content}); err != nil {
			return err
		}
	}
	return nil
}
