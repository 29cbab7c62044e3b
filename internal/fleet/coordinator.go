package fleet

import (
	"encoding/json"
	"path"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// coordinatorRetries is how often the Pod of a coordinator may fail: it does where a cluster has failed, and where the
// management cluster is away for long.
const coordinatorRetries = 3

// FleetFile is a fleet's file where no other one is named, and among those of an applier.
const FleetFile = "fleet.yaml"

// Coordinator is a Job that begins the Jobs of a rollout one after another, in the place of a command on a machine of
// an operator. revision is that of the rollout.
func Coordinator(fleet, namespace, image, revision string, deadline time.Duration) *batchv1.Job {
	return coordinator(fleet, namespace, image, Advancer, revision, deadline,
		[]string{"fleet", "advance", fleet, "--namespace", namespace, "--revision", revision})
}

// ProvidersJob is a Job that installs the providers, as an administrator, and the ConfigMap that has the
// configuration and the operator's files. It is suspended: a rollout lets it run before the Jobs of the clusters,
// which cannot install them.
func ProvidersJob(fleet, namespace, image string, files map[string][]byte, deadline time.Duration) (*corev1.ConfigMap,
	*batchv1.Job, error) {
	m, job, err := withFiles(fleet, namespace, image, files, deadline, []string{"fleet", "providers", fleet, "--namespace",
		namespace, "--config", path.Join(configDir, ChangeConfigFile), "--state-dir", tempDir})
	if err != nil {
		return nil, nil, err
	}
	job.Spec.Suspend = new(true)
	return m, job, nil
}

// Applier is a Job that applies a fleet's file, with the operator's files beside it, and the ConfigMap that has them.
// It has another name for other files.
func Applier(fleet, namespace, image string, files map[string][]byte, deadline time.Duration) (*corev1.ConfigMap,
	*batchv1.Job, error) {
	return withFiles(fleet, namespace, image, files, deadline, []string{"fleet", "apply", path.Join(configDir, FleetFile)})
}

func withFiles(fleet, namespace, image string, files map[string][]byte, deadline time.Duration, arguments []string) (
	*corev1.ConfigMap, *batchv1.Job, error) {
	data, err := json.Marshal([]any{files, image, arguments})
	if err != nil {
		return nil, nil, err
	}
	job := coordinator(fleet, namespace, image, Administrator, shortHash(data), deadline, arguments)
	m, err := configMap(metav1.ObjectMeta{Namespace: namespace, Name: job.Name, Labels: job.Labels}, files)
	if err != nil {
		return nil, nil, err
	}
	addFiles(&job.Spec.Template.Spec, job.Name, files)
	return m, job, nil
}

func coordinator(fleet, namespace, image, account, suffix string, deadline time.Duration,
	arguments []string) *batchv1.Job {
	labels := map[string]string{managedBy: application, FleetLabel: fleet}
	return &batchv1.Job{
		TypeMeta:   kind("batch/v1", "Job"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fleet-" + fleet + "-" + suffix, Labels: labels},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(coordinatorRetries)),
			ActiveDeadlineSeconds: new(int64(deadline.Seconds())),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: podSpec(account, image, tempDir, arguments)}},
	}
}
