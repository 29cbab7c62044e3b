package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Labels of what belongs to a fleet.
const (
	FleetLabel   = "slipway.dev/fleet"   // its name
	ClusterLabel = "slipway.dev/cluster" // the cluster's name
	ChangeLabel  = "slipway.dev/change"  // hash of what the Job is made from
	ActionLabel  = "slipway.dev/action"  // Apply or Destroy

	managedBy   = "app.kubernetes.io/managed-by"
	application = "slipway"
	// QueueLabel gives a Job to Kueue, which admits it by its quota.
	QueueLabel = "kueue.x-k8s.io/queue-name"
)

// What a Job does with its cluster.
const (
	Apply   = "apply"
	Destroy = "destroy"
)

// consent is the flag by which a run is told that it may replace and delete.
const consent = "--yes"

const (
	// Container is the container of a Job's Pods.
	Container = "slipway"
	// TokenSecretKey is the key of a token in its Secret.
	TokenSecretKey = "token"
	// IdentitySecret is the Secret with the key of the operator, from which the keys to the states are derived.
	IdentitySecret = "slipway-state-identity"
	// IdentitySecretKey is its key.
	IdentitySecretKey = "identity"

	configDir, stateDir, tempDir = "/config", "/state", "/tmp"
	// ChangeConfigFile is the cluster's configuration in Change.Files.
	ChangeConfigFile = "bootstrap.yaml"
	nonRoot          = 65532 // of Slipway's image
	// endWithin is how long a run may take to stop where it can be resumed, once its Pod is deleted (seconds).
	endWithin = 60
	// usageExit is the exit code of a run that refuses its configuration: to try again would not help.
	usageExit = 2
	// mostConfig is what a ConfigMap can hold, less a part for its metadata (bytes).
	mostConfig = 1<<20 - 16<<10
)

// Change is what is to be done with one cluster.
type Change struct {
	Fleet     string
	Namespace string
	Cluster   string
	Action    string // Apply or Destroy
	Image     string
	Arguments []string          // of the command: its targets and flags
	Files     map[string][]byte // bootstrap.yaml, and the operator's files by their paths beside it
	Token     string            // name of the Secret with the Hetzner token
	// Account is the ServiceAccount, and Key the Secret with the key to the state. Empty: those of a fleet that was made
	// before its clusters had their own, Administrator and IdentitySecret.
	Account  string `json:",omitempty"`
	Key      string `json:",omitempty"`
	Retries  int
	Deadline time.Duration
	// Consent is to servers that are replaced, and all else that a run asks for. It is no part of what the change is.
	Consent bool `json:"-"`
}

// hash identifies the change: two with the same content have the same.
func (c Change) hash() string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // plain data
	}
	return shortHash(data)
}

// shortHash is a hash for names.
func shortHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:10]
}

// longestStem leaves room for a hash in the name of a Job, which is a label of its Pods.
const longestStem = 63 - 11

// Name is that of the Job and of its ConfigMap.
func (c Change) Name() string {
	stem := c.Fleet + "-" + c.Cluster
	return strings.TrimRight(stem[:min(len(stem), longestStem)], "-") + "-" + c.hash()
}

func (c Change) labels() map[string]string {
	return map[string]string{managedBy: application, FleetLabel: c.Fleet, ClusterLabel: c.Cluster, ChangeLabel: c.hash(),
		ActionLabel: c.Action}
}

// key is a file's key in the ConfigMap, which has no slashes.
func key(file string) string { return strings.ReplaceAll(file, "/", "_") }

// ConfigMap has the files of the change. It cannot be changed, so that a Job never reads another configuration. It
// outlives the Job: it says what the cluster was made from.
func (c Change) ConfigMap() (*corev1.ConfigMap, error) {
	m, err := configMap(c.meta(), c.Files)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Cluster, err)
	}
	m.Annotations = map[string]string{changeAnnotation: c.description()}
	return m, nil
}

func configMap(meta metav1.ObjectMeta, files map[string][]byte) (*corev1.ConfigMap, error) {
	size := 0
	m := &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: meta, Immutable: new(true),
		BinaryData: map[string][]byte{}}
	for file, data := range files {
		if _, taken := m.BinaryData[key(file)]; taken {
			return nil, fmt.Errorf("two files have the name %s in a ConfigMap: rename one of them", key(file))
		}
		m.BinaryData[key(file)] = data
		size += len(file) + len(data)
	}
	if size > mostConfig {
		return nil, fmt.Errorf("the configuration and its files have %d bytes, more than the %d that a ConfigMap can hold: remove "+
			"files that are the built-in ones", size, mostConfig)
	}
	return m, nil
}

func (c Change) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name(), Labels: c.labels()}
}

func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// Job is suspended: it begins once its turn has come. A Pod that fails is followed by another one, which resumes, but
// for one that refuses its configuration. A Pod that was evicted, or whose node is gone, is no failure.
func (c Change) Job() *batchv1.Job {
	return &batchv1.Job{
		TypeMeta: kind("batch/v1", "Job"), ObjectMeta: c.meta(),
		Spec: batchv1.JobSpec{
			Suspend: new(true), BackoffLimit: new(int32(c.Retries)), ActiveDeadlineSeconds: new(int64(c.Deadline.Seconds())),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
					{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}},
				{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					ContainerName: new(Container), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{usageExit}}},
			}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: c.labels()}, Spec: c.pod()},
		},
	}
}

func (c Change) pod() corev1.PodSpec {
	arguments := slices.Clone(c.Arguments)
	if c.Consent {
		arguments = append(arguments, consent)
	}
	arguments = append(arguments, "--config", path.Join(configDir, ChangeConfigFile), "--state-dir", stateDir)
	pod := podSpec(cmp.Or(c.Account, Administrator), c.Image, stateDir, arguments)
	addFiles(&pod, c.Name(), c.Files)
	addVolume(&pod, scratch("state"), stateDir)
	pod.Containers[0].Env = slices.Insert(pod.Containers[0].Env, 0,
		secretVariable(settings.TokenVariable, c.Token, TokenSecretKey),
		secretVariable(settings.StateIdentityVariable, cmp.Or(c.Key, IdentitySecret), IdentitySecretKey))
	return pod
}

// podSpec is a Pod that runs the command once, by the rules of Pod Security's level restricted. Its requests are what a
// run was seen to take, and what Kueue counts: 0.1 processors on average, and 200 MiB.
func podSpec(account, image, home string, arguments []string) corev1.PodSpec {
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(endWithin)),
		ServiceAccountName: account, AutomountServiceAccountToken: new(true),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(nonRoot)),
			RunAsGroup: new(int64(nonRoot)), FSGroup: new(int64(nonRoot)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: Container, Image: image, Args: arguments,
			Env: []corev1.EnvVar{{Name: "HOME", Value: home}, {Name: "TMPDIR", Value: tempDir}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
	addVolume(&pod, scratch("temp"), tempDir)
	return pod
}

func addVolume(pod *corev1.PodSpec, v corev1.Volume, at string) {
	pod.Volumes = append(pod.Volumes, v)
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: at,
		ReadOnly: v.EmptyDir == nil})
}

// addFiles adds the files of a ConfigMap that configMap has made.
func addFiles(pod *corev1.PodSpec, name string, files map[string][]byte) {
	items := []corev1.KeyToPath{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		items = append(items, corev1.KeyToPath{Key: key(file), Path: file})
	}
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}
	addVolume(pod, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: source}}, configDir)
}

func scratch(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func secretVariable(variable, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}}
}

// TokenSecretName is the Secret of a token that a fleet's file takes from elsewhere.
func TokenSecretName(fleet, token string) string { return fleet + "-token-" + token }

// Secret is a Secret of a fleet: a token under TokenSecretKey, for example.
func Secret(namespace, name, key string, value []byte) *corev1.Secret {
	return &corev1.Secret{TypeMeta: kind("v1", "Secret"), ObjectMeta: meta(namespace, name, ""),
		Data: map[string][]byte{key: value}}
}
