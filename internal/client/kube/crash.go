package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crashLoop is the kubelet's reason of a container that it restarts later, because it has ended too often.
const crashLoop = "CrashLoopBackOff"

// longestMessage is how much of a container's last words is repeated.
const longestMessage = 240

// Crashing tells of the first container of a Pod that ends, is restarted and ends again; empty: none does.
func Crashing(p *corev1.Pod) string {
	for _, s := range containers(p) {
		if crashes(s) {
			return ended(s)
		}
	}
	return ""
}

// containers are the states of all containers of a Pod, in the order in which they start.
func containers(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// crashes reports whether a container ends again and again: the kubelet says so, or it is not ready and has been
// restarted twice. A single restart belongs to many a start.
func crashes(s corev1.ContainerStatus) bool {
	if s.State.Waiting != nil {
		return s.State.Waiting.Reason == crashLoop
	}
	if last := lastEnd(s); s.Ready || last == nil || last.ExitCode == 0 {
		return false
	}
	return s.RestartCount > 1
}

// lastEnd is how a container ended last; nil: it never has.
func lastEnd(s corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// ended says how a container ended last, and how often it was restarted.
func ended(s corev1.ContainerStatus) string {
	said := "container " + s.Name
	last := lastEnd(s)
	if last == nil {
		return said + " ended" + restarted(s)
	}
	said += fmt.Sprintf(" ended with exit code %d", last.ExitCode)
	if last.Reason != "" && last.Reason != "Error" && last.Reason != "Completed" { // the exit code says the same
		said += " (" + last.Reason + ")"
	}
	said += restarted(s)
	if message := strings.Join(strings.Fields(last.Message), " "); message != "" {
		runes := []rune(message)
		if len(runes) > longestMessage {
			message = "…" + string(runes[len(runes)-longestMessage:]) // the end of a log is what it ended with
		}
		said += ": " + message
	}
	return said
}

func restarted(s corev1.ContainerStatus) string {
	said := ""
	switch s.RestartCount {
	case 0:
	case 1:
		said = ", was restarted once"
	default:
		said = fmt.Sprintf(", was restarted %d times", s.RestartCount)
	}
	if s.State.Waiting != nil && s.State.Waiting.Reason == crashLoop {
		said += " (" + crashLoop + ")"
	}
	return said
}

// Container is a container of a Pod, whatever becomes of another Pod of the same name.
type Container struct {
	Pod  types.UID
	Name string
}

// Run is how often a container was restarted, and how it ended last.
type Run struct {
	Restarts int32
	Ended    string // "Pod x: container c ended with exit code 1, was restarted once"; empty: it never has
	Crashes  bool   // it ends again and again
}

// Runs tells how often each container of the workloads' Pods was restarted. Pods that are being deleted are left out.
func (c *Cluster) Runs(ctx context.Context, workloads ...Workload) (map[Container]Run, error) {
	runs, pods := map[Container]Run{}, map[string][]corev1.Pod{} // by namespace: releases share one
	for _, w := range workloads {
		selector, err := c.podLabels(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", w, err)
		}
		if _, listed := pods[w.Namespace]; !listed {
			l := &corev1.PodList{}
			if err := c.List(ctx, l, client.InNamespace(w.Namespace)); err != nil {
				return nil, fmt.Errorf("list the Pods of namespace %s: %w", w.Namespace, err)
			}
			pods[w.Namespace] = l.Items
		}
		for i := range pods[w.Namespace] {
			p := &pods[w.Namespace][i]
			if p.DeletionTimestamp != nil || !selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			for _, s := range containers(p) {
				run := Run{Restarts: s.RestartCount, Crashes: crashes(s)}
				if lastEnd(s) != nil {
					run.Ended = fmt.Sprintf("Pod %s: %s", p.Name, ended(s))
				}
				runs[Container{p.UID, s.Name}] = run
			}
		}
	}
	return runs, nil
}

// podLabels selects the Pods of a workload; none where its template has no labels.
func (c *Cluster) podLabels(ctx context.Context, w Workload) (labels.Selector, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("apps/v1")
	if w.Kind == "Job" {
		o.SetAPIVersion("batch/v1")
	}
	o.SetKind(w.Kind)
	if err := c.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Name}, o); err != nil {
		return nil, err
	}
	set, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	if len(set) == 0 {
		return labels.Nothing(), err
	}
	return labels.SelectorFromSet(set), err
}
