package certmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// issuers finds the signing authority.
type issuers struct {
	client.Reader
	// clusterNamespace holds the Secrets of ClusterIssuers (--cluster-resource-namespace).
	clusterNamespace string
}

// authority returns the authority that signs a Certificate, nil if it is self-signed, or why there is none.
func (i issuers) authority(ctx context.Context, c *Certificate) (*authority, error) {
	ref := c.Spec.IssuerRef
	if ref.Group != "" && ref.Group != group {
		return nil, fmt.Errorf("issuers of group %s are not simulated", ref.Group)
	}
	kind, key := ref.Kind, client.ObjectKey{Name: ref.Name}
	var found anyIssuer
	switch kind {
	case "", "Issuer":
		kind, found, key.Namespace = "Issuer", &Issuer{}, c.Namespace
	case "ClusterIssuer":
		found = &ClusterIssuer{}
	default:
		return nil, fmt.Errorf("issuers of kind %s are not simulated", kind)
	}
	if err := i.Get(ctx, key, found); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, ref.Name, err)
	}
	if _, status := found.parts(); !isReady(status.Conditions) {
		return nil, fmt.Errorf("%s %s is not ready", kind, ref.Name)
	}
	return i.read(ctx, found)
}

// errNotSimulated says that an issuer is of another kind than the two.
var errNotSimulated = errors.New("only selfSigned and ca issuers are simulated by this stand-in for cert-manager")

// read returns the authority of an issuer.
func (i issuers) read(ctx context.Context, of anyIssuer) (*authority, error) {
	switch spec, _ := of.parts(); {
	case spec.SelfSigned != nil:
		return nil, nil
	case spec.CA != nil:
		key := client.ObjectKey{Namespace: cmp.Or(of.GetNamespace(), i.clusterNamespace), Name: spec.CA.SecretName}
		secret := &corev1.Secret{}
		if err := i.Get(ctx, key, secret); err != nil {
			return nil, fmt.Errorf("the authority's Secret %s: %w", key, err)
		}
		by, err := readAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return nil, fmt.Errorf("the authority's Secret %s: %w", key, err)
		}
		return by, nil
	default:
		return nil, errNotSimulated
	}
}

// ready is the Ready condition of an issuer.
func (i issuers) ready(ctx context.Context, of anyIssuer) Condition {
	is := Condition{Status: corev1.ConditionFalse, ObservedGeneration: of.GetGeneration()}
	by, err := i.read(ctx, of)
	switch {
	case errors.Is(err, errNotSimulated):
		is.Reason, is.Message = "NotSimulated", err.Error()
	case err != nil:
		is.Reason, is.Message = "ErrGetKeyPair", "Error getting keypair for CA issuer: "+err.Error()
	case by == nil:
		is.Status, is.Reason = corev1.ConditionTrue, "IsReady"
	default:
		is.Status, is.Reason, is.Message = corev1.ConditionTrue, "KeyPairVerified", "Signing CA verified"
	}
	return is
}

// issuerReconciler maintains the Ready condition of Issuers, or of ClusterIssuers.
type issuerReconciler struct {
	client.Client
	issuers issuers
	cluster bool
}

// empty is an empty issuer, and an empty list of them.
func (r *issuerReconciler) empty() (anyIssuer, client.ObjectList) {
	if r.cluster {
		return &ClusterIssuer{}, &ClusterIssuerList{}
	}
	return &Issuer{}, &IssuerList{}
}

func (r *issuerReconciler) setup(mgr ctrl.Manager) error {
	name := "issuer"
	if r.cluster {
		name = "clusterissuer"
	}
	one, _ := r.empty()
	return ctrl.NewControllerManagedBy(mgr).Named(name).For(one).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.signingWith)).
		Complete(r)
}

// signingWith returns the issuers that sign with the authority in a Secret.
func (r *issuerReconciler) signingWith(ctx context.Context, secret client.Object) (requests []reconcile.Request) {
	namespace := secret.GetNamespace()
	if r.cluster {
		if namespace != r.issuers.clusterNamespace {
			return nil
		}
		namespace = metav1.NamespaceAll
	}
	_, list := r.empty()
	err := r.List(ctx, list, client.InNamespace(namespace))
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			one := item.(anyIssuer)
			if spec, _ := one.parts(); spec.CA != nil && spec.CA.SecretName == secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(one)})
			}
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the issuers that a Secret may belong to", "secret", secret.GetName())
	}
	return requests
}

// Reconcile sets an issuer's condition.
func (r *issuerReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	one, _ := r.empty()
	if err := r.Get(ctx, request.NamespacedName, one); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := one.DeepCopyObject().(client.Object)
	_, status := one.parts()
	status.Conditions = setReady(status.Conditions, metav1.Now(), r.issuers.ready(ctx, one))
	return reconcile.Result{}, patchStatus(ctx, r.Client, one, before)
}
