package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadyPodOf is the name of a Pod behind a Service that is ready. Where there is none, it is a NoReadyPodError.
func (c *Cluster) ReadyPodOf(ctx context.Context, namespace, service string) (string, error) {
	s := &corev1.Service{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, s); err != nil {
		return "", fmt.Errorf("get Service %s/%s: %w", namespace, service, err)
	}
	if len(s.Spec.Selector) == 0 {
		return "", fmt.Errorf("Service %s/%s selects no Pods", namespace, service)
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(s.Spec.Selector)); err != nil {
		return "", fmt.Errorf("list the Pods of Service %s/%s: %w", namespace, service, err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil && podReady(p) {
			return p.Name, nil
		}
	}
	return "", &NoReadyPodError{namespace, service, len(pods.Items)}
}

// NoReadyPodError says that a Service has no Pod that is ready.
type NoReadyPodError struct {
	Namespace, Service string
	Pods               int // that it has
}

// Error implements error.
func (e *NoReadyPodError) Error() string {
	return fmt.Sprintf("none of the %d Pods of Service %s/%s is ready", e.Pods, e.Namespace, e.Service)
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
