package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// lookEvery is how often a rollout is looked at without a signal: a watch can miss a change while the API is away.
	lookEvery = 15 * time.Second
	// awayFor is how long the management cluster may give no answer. Its Jobs go on meanwhile.
	awayFor = 10 * time.Minute
	// askWithin bounds one look.
	askWithin = 30 * time.Second
)

// Observer hears of a rollout that is advanced. Changed gets the clusters as they are now, whenever one has changed.
type Observer struct {
	Changed func([]ClusterStatus)
	Note    func(format string, args ...any)
}

// AdvanceResult is how a rollout has ended.
type AdvanceResult struct {
	Clusters []ClusterStatus
	// Held is why the clusters that wait were not begun; empty: none waits.
	Held string
}

// Advance begins the Jobs whose turn has come until all have ended, or too many have failed. It can be ended at any
// time: the Jobs that have begun go on, and Advance continues with what is in the management cluster. Several may
// advance one rollout. revision is that of the rollout that is meant; empty: the newest. Its error wraps ErrReplaced
// once a newer rollout has begun.
func Advance(ctx context.Context, c *kube.Cluster, namespace, fleet, revision string, observe Observer) (AdvanceResult,
	error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := Changes(ctx, c, namespace, fleet)
	tick := time.Tick(lookEvery)
	a := advancing{cluster: c, namespace: namespace, fleet: fleet, revision: revision, observe: observe}
	for {
		again, err := a.look(ctx)
		switch {
		case context.Cause(ctx) != nil:
			return a.result, context.Cause(ctx)
		case err == nil && a.ended:
			return a.result, nil
		case err != nil && (!passing(err) || a.awayTooLong(err)):
			return a.result, err
		case again:
			continue
		}
		select {
		case <-ctx.Done():
		case <-changes:
		case <-tick:
		}
	}
}

// Changes signals that Jobs or Pods of a fleet have changed.
func Changes(ctx context.Context, c *kube.Cluster, namespace, fleet string) <-chan struct{} {
	of := ofFleet(namespace, fleet)
	return c.Changes(ctx, kube.Selection{List: &batchv1.JobList{}, Options: of},
		kube.Selection{List: &corev1.PodList{}, Options: of})
}

// ofFleet selects what belongs to a fleet.
func ofFleet(namespace, fleet string) []client.ListOption {
	return []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{FleetLabel: fleet}}
}

// passing reports whether an error may be gone in a moment.
func passing(err error) bool { return kube.Unwell(err) || errors.Is(err, context.DeadlineExceeded) }

// advancing is a rollout that is advanced.
type advancing struct {
	cluster          *kube.Cluster
	namespace, fleet string
	observe          Observer

	revision string // of the rollout that it advances; empty: the first that it reads
	shown    []ClusterStatus
	result   AdvanceResult
	ended    bool
	dropped  []string // clusters of which nothing is kept any more

	away time.Time // since when the management cluster gives no answer; zero: it does
	said string    // what was noted of that
}

// awayTooLong notes that the management cluster does not answer, and reports whether that has lasted too long.
func (a *advancing) awayTooLong(err error) bool {
	if a.away.IsZero() {
		a.away = time.Now()
	}
	if text := err.Error(); a.said == "" {
		a.said = text
		a.observe.Note("the management cluster does not answer; the Jobs that have begun go on without it being asked: %s",
			text)
	}
	return time.Since(a.away) > awayFor
}

// look does once what is to be done. again: something else has changed the rollout meanwhile.
func (a *advancing) look(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := readStored(ctx, a.cluster, a.namespace, a.fleet)
	if err != nil {
		return false, err
	}
	if a.revision == "" {
		a.revision = Revision(s.Entries)
	}
	if a.revision != Revision(s.Entries) {
		return false, fmt.Errorf("fleet %s: %w", a.fleet, ErrReplaced)
	}
	is, err := look(ctx, a.cluster, s.Rollout)
	if err != nil {
		return false, err
	}
	if a.said != "" {
		a.observe.Note("the management cluster answers again")
	}
	a.away, a.said = time.Time{}, ""
	d := s.decide(is)
	own := slices.DeleteFunc(slices.Clone(is.clusters), func(one ClusterStatus) bool {
		return !slices.Contains(s.Entries, Entry{one.Cluster, one.Job})
	})
	a.result, a.ended = AdvanceResult{Clusters: own, Held: d.held}, d.ended
	if !slices.EqualFunc(a.shown, own, same) {
		a.shown = own
		a.observe.Changed(own)
	}
	if err := a.dropDestroyed(ctx, s.Rollout, own); err != nil {
		return false, err
	}
	if len(d.release) > 0 {
		if again, err := s.release(ctx, a.cluster, d.release); again || err != nil {
			return again, err
		}
		s.Released = append(s.Released, d.release...)
	}
	if d.providers {
		a.observe.Note("Job %s/%s makes sure that the providers are installed in the management cluster, before any "+
			"cluster is changed", s.Namespace, s.Providers)
		if again, err := a.start(ctx, is.jobs[s.Providers], ""); again || err != nil {
			return again, err
		}
	}
	again, err = a.begin(ctx, s.Rollout, is.jobs)
	return again || len(d.release) > 0, err
}

// dropDestroyed deletes what is kept of clusters that were destroyed, once.
func (a *advancing) dropDestroyed(ctx context.Context, r Rollout, all []ClusterStatus) error {
	var gone []string
	for _, one := range all {
		if one.Action == Destroy && one.Phase == Done && !slices.Contains(a.dropped, one.Cluster) {
			gone = append(gone, one.Cluster)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := pruneDestroyed(ctx, a.cluster, r, gone); err != nil {
		return err
	}
	a.dropped = append(a.dropped, gone...)
	return nil
}

func same(a, b ClusterStatus) bool {
	return a.Cluster == b.Cluster && a.Job == b.Job && a.Phase == b.Phase && a.Attempts == b.Attempts &&
		a.Message == b.Message
}

// start lets a Job run, or gives it to a queue of Kueue, which lets it run. A Job that was
// changed since it was listed, or made anew, is not touched, and again is true.
func (a *advancing) start(ctx context.Context, job *batchv1.Job, queue string) (again bool, err error) {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"suspend":false}}`, job.ResourceVersion)
	if queue != "" {
		patch = fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{%q:%q}}}`, job.ResourceVersion, QueueLabel,
			queue)
	}
	o := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	switch err := a.cluster.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("begin Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return false, nil
}

// begin starts the Jobs of the released clusters. again: one of them was changed since it was listed.
func (a *advancing) begin(ctx context.Context, r Rollout, jobs map[string]*batchv1.Job) (again bool, err error) {
	for _, e := range r.Entries {
		job := jobs[e.Job] // where it is gone decide says so
		if job == nil || !slices.Contains(r.Released, e.Cluster) || begun(job, r.Queue) {
			continue
		}
		if err := markBegun(ctx, a.cluster, r.Namespace, e.Job); err != nil {
			return false, err
		}
		changed, err := a.start(ctx, job, r.Queue)
		if err != nil {
			return false, err
		}
		again = again || changed
	}
	return again, nil
}

// begun reports whether a Job runs, or is Kueue's.
func begun(job *batchv1.Job, queue string) bool {
	return job.Spec.Suspend == nil || !*job.Spec.Suspend || queue != "" && job.Labels[QueueLabel] == queue
}
