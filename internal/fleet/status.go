package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Phase is where the change of a cluster is.
type Phase string

// Phases, in their order.
const (
	Waiting Phase = "waiting" // its turn has not come
	Queued  Phase = "queued"  // its turn has come, and no Pod runs: Kueue has not admitted it, or the next attempt follows
	Running Phase = "running"
	Done    Phase = "done"
	Failed  Phase = "failed" // for good: its retries or its time are used up, or its configuration is refused
)

func (p Phase) working() bool { return p == Queued || p == Running }

// ClusterStatus is where the change of one cluster is.
type ClusterStatus struct {
	Cluster  string     `json:"cluster"`
	Job      string     `json:"job"`
	Action   string     `json:"action"`
	Phase    Phase      `json:"phase"`
	Attempts int        `json:"attempts"` // Pods that have run, or run
	Began    *time.Time `json:"began,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Pod      string     `json:"pod,omitempty"` // the newest
	// Message is why it has failed, or why its Pod does not run; empty: neither.
	Message string `json:"message,omitempty"`
}

// Statuses reads where the clusters of a fleet are: those of its rollout in their order, and then those of earlier
// ones. held is why the clusters that wait are not begun; empty: they are, or none waits.
func Statuses(ctx context.Context, c *kube.Cluster, r Rollout) (all []ClusterStatus, held string, err error) {
	s, err := look(ctx, c, r)
	if err != nil {
		return nil, "", err
	}
	return s.clusters, r.decide(s).held, nil
}

// observed is what the Jobs of a rollout were at one moment.
type observed struct {
	clusters  []ClusterStatus // those of earlier rollouts, too
	providers ClusterStatus   // of the Job that installs the providers; Done where the rollout has none
	jobs      map[string]*batchv1.Job
}

func look(ctx context.Context, c *kube.Cluster, r Rollout) (s observed, err error) {
	jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
	of := ofFleet(r.Namespace, r.Fleet)
	if err := c.List(ctx, jobs, of...); err != nil {
		return s, fmt.Errorf("list the Jobs of fleet %s: %w", r.Fleet, err)
	}
	if err := c.List(ctx, pods, of...); err != nil {
		return s, fmt.Errorf("list the Pods of fleet %s: %w", r.Fleet, err)
	}
	s.jobs = map[string]*batchv1.Job{}
	for i := range jobs.Items {
		s.jobs[jobs.Items[i].Name] = &jobs.Items[i]
	}
	// By the UID: Pods of a Job that was made anew under its name are there for a moment longer than it.
	podsByJob := map[types.UID][]corev1.Pod{}
	for _, pod := range pods.Items {
		if owner := metav1.GetControllerOf(&pod); owner != nil {
			podsByJob[owner.UID] = append(podsByJob[owner.UID], pod)
		}
	}
	for _, e := range r.Entries {
		if job := s.jobs[e.Job]; job != nil {
			s.clusters = append(s.clusters, statusOf(e, job, inOrder(podsByJob[job.UID]), slices.Contains(r.Released,
				e.Cluster)))
		}
	}
	s.clusters = append(s.clusters, earlier(r, jobs.Items, podsByJob)...)
	s.providers = ClusterStatus{Phase: Done}
	if r.Providers != "" {
		s.providers = ClusterStatus{Phase: lost}
		if job := s.jobs[r.Providers]; job != nil {
			s.providers = statusOf(Entry{Job: r.Providers}, job, inOrder(podsByJob[job.UID]), false)
		}
	}
	return s, nil
}

// earlier are the clusters of a fleet that its newest rollout does not have, each by its newest Job.
func earlier(r Rollout, jobs []batchv1.Job, pods map[types.UID][]corev1.Pod) (all []ClusterStatus) {
	newest := map[string]*batchv1.Job{}
	for i := range jobs {
		cluster := jobs[i].Labels[ClusterLabel]
		if cluster == "" || r.has(cluster) {
			continue
		}
		if is := newest[cluster]; is == nil || is.CreationTimestamp.Before(&jobs[i].CreationTimestamp) {
			newest[cluster] = &jobs[i]
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(newest)) {
		job := newest[cluster]
		all = append(all, statusOf(Entry{cluster, job.Name}, job, inOrder(pods[job.UID]), false))
	}
	return all
}

// inOrder sorts Pods, the newest last.
func inOrder(pods []corev1.Pod) []corev1.Pod {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return pods
}

func statusOf(e Entry, job *batchv1.Job, pods []corev1.Pod, released bool) ClusterStatus {
	s := ClusterStatus{Cluster: e.Cluster, Job: e.Job, Action: job.Labels[ActionLabel], Phase: Waiting,
		Attempts: len(pods)}
	if job.Status.StartTime != nil {
		began := job.Status.StartTime.Time
		s.Began = &began
	}
	suspended := job.Spec.Suspend != nil && *job.Spec.Suspend
	terminating := job.Status.Terminating != nil && *job.Status.Terminating > 0
	if released || !suspended || job.Status.Active > 0 || terminating { // Kueue suspends a Job that runs
		s.Phase = Queued
	}
	if len(pods) > 0 {
		newest := &pods[len(pods)-1]
		s.Pod = newest.Name
		s.Message = podMessage(newest)
		if newest.Status.Phase == corev1.PodRunning || newest.Status.Phase == corev1.PodSucceeded {
			s.Phase = Running
		}
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		ended := condition.LastTransitionTime.Time
		switch condition.Type {
		case batchv1.JobComplete:
			s.Phase, s.Ended, s.Message = Done, &ended, ""
		case batchv1.JobFailed:
			s.Phase, s.Ended = Failed, &ended
			s.Message = strings.TrimSpace(condition.Reason + ": " + condition.Message + "\n" + s.Message)
		}
	}
	return s
}

// podMessage is what the last run said when it failed, or why the Pod does not run.
func podMessage(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		switch state := s.State; {
		case state.Terminated != nil && state.Terminated.ExitCode != 0:
			return fmt.Sprintf("exit code %d: %s", state.Terminated.ExitCode,
				cmp.Or(strings.TrimSpace(state.Terminated.Message), state.Terminated.Reason))
		case state.Waiting != nil && state.Waiting.Message != "":
			return state.Waiting.Reason + ": " + state.Waiting.Message
		case state.Waiting != nil && state.Waiting.Reason != "ContainerCreating":
			return state.Waiting.Reason
		}
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Reason + ": " + condition.Message
		}
	}
	return ""
}
