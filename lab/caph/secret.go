package caph

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

const (
	// secretLabel marks the secrets that are in use here; only these are cached.
	secretLabel      = "caph.environment"
	secretLabelValue = "owned"
	// secretFinalizer keeps the Hetzner secret while a HetznerCluster needs it for its deletion.
	secretFinalizer = "infrastructure.cluster.x-k8s.io/caph-secret"
)

// obtain reads a secret: from the cache, which holds labelled ones only, else from the API.
func (r *reconciler) obtain(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		err = r.reader.Get(ctx, key, secret)
	}
	return secret, err
}

// acquire reads a secret and marks it as in use: label, an owner reference that does not control (by which the secret
// moves with its cluster), and the finalizer where wanted.
func (r *reconciler) acquire(
	ctx context.Context, key client.ObjectKey, owner client.Object, finalizer bool,
) (*corev1.Secret, error) {
	secret, err := r.obtain(ctx, key)
	if err != nil {
		return nil, err
	}
	before := secret.DeepCopy()
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	secret.Labels[secretLabel] = secretLabelValue
	if err := controllerutil.SetOwnerReference(owner, secret, r.Scheme()); err != nil {
		return nil, fmt.Errorf("marking secret %s as owned: %w", key, err)
	}
	if finalizer {
		controllerutil.AddFinalizer(secret, secretFinalizer)
	}
	if sameMeta(before, secret) {
		return secret, nil
	}
	if err := r.Update(ctx, secret); err != nil {
		return nil, fmt.Errorf("marking secret %s as in use: %w", key, err)
	}
	return secret, nil
}

// release reverts acquire for owner, so that the secret can be deleted.
func (r *reconciler) release(ctx context.Context, secret *corev1.Secret, owner client.Object) error {
	secret = secret.DeepCopy()
	before := secret.DeepCopy()
	controllerutil.RemoveFinalizer(secret, secretFinalizer)
	if owned, err := controllerutil.HasOwnerReference(secret.OwnerReferences, owner, r.Scheme()); err != nil {
		return err
	} else if owned {
		if err := controllerutil.RemoveOwnerReference(owner, secret, r.Scheme()); err != nil {
			return err
		}
	}
	if sameMeta(before, secret) {
		return nil
	}
	return client.IgnoreNotFound(r.Update(ctx, secret))
}

// credentials returns the API token of a HetznerCluster and its secret. If there is none, it sets the condition
// HCloudTokenAvailable of object and returns how to continue: a missing secret is read again later, an empty token is
// an error.
func (r *reconciler) credentials(
	ctx context.Context, cluster *api.HetznerCluster, object conditions.Setter,
) (string, *corev1.Secret, reconcile.Result, error) {
	ref := cluster.Spec.HetznerSecret
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}
	unavailable := func(reason, format string, args ...any) {
		conditions.MarkFalse(object, api.HCloudTokenAvailable, reason, clusterv1.ConditionSeverityError, format, args...)
	}
	secret, err := r.acquire(ctx, key, cluster, cluster.DeletionTimestamp.IsZero())
	switch {
	case apierrors.IsNotFound(err):
		unavailable(api.HetznerSecretUnreachable, "could not find HetznerSecret")
		return "", nil, r.after(secretPoll), nil
	case apierrors.IsConflict(err):
		return "", nil, r.after(ownerPoll), nil // another controller marked it: try again
	case err != nil:
		unavailable(api.HCloudCredentialsInvalid, "%s", err)
		return "", nil, reconcile.Result{}, fmt.Errorf("reading the Hetzner secret %s: %w", key, err)
	}
	token := string(secret.Data[ref.Key.HCloudToken])
	if token == "" {
		unavailable(api.HCloudCredentialsInvalid, "invalid or not specified hcloud token in Hetzner secret")
		return "", nil, reconcile.Result{}, fmt.Errorf("the Hetzner secret %s has no token under key %q", key,
			ref.Key.HCloudToken)
	}
	return token, secret, reconcile.Result{}, nil
}
