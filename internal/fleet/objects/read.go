package objects

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/settings"
)

// Read is the change that a Job and its ConfigMap were made of, but for its arguments.
func Read(job *batchv1.Job, files *corev1.ConfigMap) (Change, error) {
	c := Change{Fleet: job.Labels[FleetLabel], Namespace: job.Namespace, Cluster: job.Labels[ClusterLabel],
		Action: job.Labels[ActionLabel], Files: map[string][]byte{}}
	pod := job.Spec.Template.Spec
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
	if i < 0 || len(pod.Containers) != 1 {
		return c, fmt.Errorf("Job %s/%s is not one that a fleet has made", job.Namespace, job.Name)
	}
	for _, item := range pod.Volumes[i].ConfigMap.Items {
		c.Files[item.Path] = files.BinaryData[item.Key]
	}
	c.Image = pod.Containers[0].Image
	for _, variable := range pod.Containers[0].Env {
		if variable.Name == settings.TokenVariable && variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
			c.Token = variable.ValueFrom.SecretKeyRef.Name
		}
	}
	if job.Spec.BackoffLimit != nil {
		c.Retries = int(*job.Spec.BackoffLimit)
	}
	if job.Spec.ActiveDeadlineSeconds != nil {
		c.Deadline = time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second
	}
	return c, nil
}
