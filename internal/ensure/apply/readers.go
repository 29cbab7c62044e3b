package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// StaleReaders are the workloads in a Secret's namespace whose Pods have environment variables of it, as they were
// before its content was replaced: a Pod reads them once, as it starts. replaced is when that was.
func StaleReaders(ctx context.Context, c *kube.Cluster, namespace, name string) (stale []client.Object, replaced string,
	err error) {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, "", fmt.Errorf("get Secret %s/%s: %w", namespace, name, err)
	}
	if replaced = secret.Annotations[capi.ReplacedAnnotation]; replaced == "" {
		return nil, "", nil
	}
	at, err := time.Parse(time.RFC3339Nano, replaced)
	if err != nil {
		return nil, "", fmt.Errorf("annotation %s of Secret %s/%s: %w", capi.ReplacedAnnotation, namespace, name, err)
	}
	add := func(o client.Object, kind string, pod *corev1.PodTemplateSpec) {
		if pod.Annotations[capi.ReplacedAnnotation] != replaced && !o.GetCreationTimestamp().After(at) &&
			readsAtStart(pod.Spec, name) {
			o.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
			stale = append(stale, o)
		}
	}
	var deployments appsv1.DeploymentList
	var daemons appsv1.DaemonSetList
	var stateful appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&deployments, &daemons, &stateful} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, "", fmt.Errorf("look for what reads Secret %s/%s: %w", namespace, name, err)
		}
	}
	for i := range deployments.Items {
		add(&deployments.Items[i], "Deployment", &deployments.Items[i].Spec.Template)
	}
	for i := range daemons.Items {
		add(&daemons.Items[i], "DaemonSet", &daemons.Items[i].Spec.Template)
	}
	for i := range stateful.Items {
		add(&stateful.Items[i], "StatefulSet", &stateful.Items[i].Spec.Template)
	}
	return stale, replaced, nil
}

// readsAtStart reports whether a container of a Pod has an environment variable of a Secret.
func readsAtStart(pod corev1.PodSpec, secret string) bool {
	return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
			return v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil && v.ValueFrom.SecretKeyRef.Name == secret
		}) || slices.ContainsFunc(c.EnvFrom, func(s corev1.EnvFromSource) bool {
			return s.SecretRef != nil && s.SecretRef.Name == secret
		})
	})
}

// RestartReaders restarts them, as kubectl rollout restart does. Who needs them waits for them.
func RestartReaders(ctx context.Context, say flow.Say, c *kube.Cluster, namespace, name string) error {
	stale, replaced, err := StaleReaders(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{capi.ReplacedAnnotation: replaced}}}}})
	if err != nil {
		return err
	}
	for _, o := range stale {
		say("restarting %s, which read Secret %s/%s before its content was replaced", kube.Describe(o), namespace, name)
		if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil && !kube.Absent(err) {
			return fmt.Errorf("restart %s: %w", kube.Describe(o), err)
		}
	}
	return nil
}
