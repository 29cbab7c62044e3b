package kube

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Workload names something that runs Pods.
type Workload struct {
	Kind      string `json:"kind"` // Deployment, DaemonSet, StatefulSet or Job
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "DaemonSet cilium".
func (w Workload) String() string { return w.Kind + " " + w.Name }

// Workloads finds what runs Pods among the objects of a rendered manifest. Objects without a namespace are in the given
// one.
func Workloads(manifest, namespace string) ([]Workload, error) {
	docs, err := Documents([]byte(manifest))
	if err != nil {
		return nil, err
	}
	var found []Workload
	for _, doc := range docs {
		o, err := Parse(doc)
		if err != nil {
			return nil, err
		}
		switch o.GetKind() {
		case "Deployment", "DaemonSet", "StatefulSet", "Job":
			found = append(found, Workload{Kind: o.GetKind(), Namespace: cmp.Or(o.GetNamespace(), namespace),
				Name: o.GetName()})
		}
	}
	return found, nil
}

// Exist reports whether all of the workloads are there, in whatever state.
func (c *Cluster) Exist(ctx context.Context, workloads ...Workload) (bool, error) {
	for _, w := range workloads {
		_, err := c.unready(ctx, w)
		if Absent(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get %s: %w", w, err)
		}
	}
	return true, nil
}

// Unready says what of the workloads is not ready yet, and why as far as the Pods tell; empty when all are. An absent
// workload is unready; see Absent for telling.
func (c *Cluster) Unready(ctx context.Context, workloads ...Workload) (string, error) {
	var missing []string
	for _, w := range workloads {
		m, err := c.unready(ctx, w)
		if Absent(err) {
			m, err = w.String()+" does not exist", nil
		}
		if err != nil {
			return "", fmt.Errorf("get %s: %w", w, err)
		}
		if m != "" {
			missing = append(missing, m)
		}
	}
	return strings.Join(missing, "; "), nil
}

func (c *Cluster) unready(ctx context.Context, w Workload) (string, error) {
	key := client.ObjectKey{Namespace: w.Namespace, Name: w.Name}
	switch w.Kind {
	case "Deployment":
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, key, d); err != nil {
			return "", err
		}
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		s := d.Status
		if d.Generation <= s.ObservedGeneration && s.UpdatedReplicas >= want && s.AvailableReplicas >= want &&
			s.Replicas <= s.UpdatedReplicas {
			return "", nil
		}
		return c.because(ctx, fmt.Sprintf("%s has %d of %d available", w, min(s.AvailableReplicas, s.UpdatedReplicas), want),
			w, d.Spec.Template.Labels)
	case "DaemonSet":
		d := &appsv1.DaemonSet{}
		if err := c.Get(ctx, key, d); err != nil {
			return "", err
		}
		s := d.Status
		if d.Generation <= s.ObservedGeneration && s.DesiredNumberScheduled > 0 &&
			s.UpdatedNumberScheduled >= s.DesiredNumberScheduled && s.NumberReady >= s.DesiredNumberScheduled {
			return "", nil
		}
		if s.DesiredNumberScheduled == 0 {
			return w.String() + " has no node to run on yet", nil
		}
		return c.because(ctx, fmt.Sprintf("%s is ready on %d of %d nodes", w, s.NumberReady, s.DesiredNumberScheduled), w,
			d.Spec.Template.Labels)
	case "StatefulSet":
		d := &appsv1.StatefulSet{}
		if err := c.Get(ctx, key, d); err != nil {
			return "", err
		}
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		if d.Generation <= d.Status.ObservedGeneration && d.Status.UpdatedReplicas >= want && d.Status.ReadyReplicas >= want {
			return "", nil
		}
		return c.because(ctx, fmt.Sprintf("%s has %d of %d ready", w, d.Status.ReadyReplicas, want), w,
			d.Spec.Template.Labels)
	case "Job":
		j := &batchv1.Job{}
		if err := c.Get(ctx, key, j); err != nil {
			return "", err
		}
		for _, cond := range j.Status.Conditions {
			if cond.Type == batchv1.JobComplete && cond.Status == corev1.ConditionTrue {
				return "", nil
			}
		}
		return c.because(ctx, fmt.Sprintf("%s has not completed", w), w, j.Spec.Template.Labels)
	default:
		return "", fmt.Errorf("no rule for the readiness of a %s", w.Kind)
	}
}

// because adds what the workload's Pods say about why they are not ready.
func (c *Cluster) because(ctx context.Context, what string, w Workload, labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return what, nil
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(w.Namespace), client.MatchingLabels(labels)); err != nil {
		return "", err
	}
	for i := range pods.Items {
		if why := PodTrouble(&pods.Items[i]); why != "" {
			return what + " (" + why + ")", nil
		}
	}
	return what, nil
}

// PodTrouble is the first thing that keeps a Pod from being ready; empty where it is ready or says nothing.
func PodTrouble(p *corev1.Pod) string {
	for _, s := range containers(p) {
		switch {
		case crashes(s):
			return fmt.Sprintf("Pod %s: %s", p.Name, ended(s))
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			return strings.TrimSpace(fmt.Sprintf("Pod %s: %s %s", p.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("Pod %s: %s", p.Name, ended(s))
		}
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			why, _, _ := strings.Cut(cond.Message, " preemption:") // what follows repeats it
			return fmt.Sprintf("Pod %s is not scheduled: %s", p.Name, why)
		}
	}
	return ""
}
