package certmanager

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	switch ref.Kind {
	case "", "Issuer":
		found := &Issuer{}
		if err := i.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: ref.Name}, found); err != nil {
			return nil, fmt.Errorf("Issuer %s: %w", ref.Name, err)
		}
		if !isReady(found.Status.Conditions) {
			return nil, fmt.Errorf("Issuer %s is not ready", ref.Name)
		}
		return i.read(ctx, found.Spec, found.Namespace)
	case "ClusterIssuer":
		found := &ClusterIssuer{}
		if err := i.Get(ctx, client.ObjectKey{Name: ref.Name}, found); err != nil {
			return nil, fmt.Errorf("ClusterIssuer %s: %w", ref.Name, err)
		}
		if !isReady(found.Status.Conditions) {
			return nil, fmt.Errorf("ClusterIssuer %s is not ready", ref.Name)
		}
		return i.read(ctx, found.Spec, i.clusterNamespace)
	default:
		return nil, fmt.Errorf("issuers of kind %s are not simulated", ref.Kind)
	}
}

// errNotSimulated says that an issuer is of another kind than the two.
var errNotSimulated = errors.New("only selfSigned and ca issuers are simulated by this stand-in for cert-manager")

// read returns the authority of an issuer's spec.
func (i issuers) read(ctx context.Context, spec IssuerSpec, namespace string) (*authority, error) {
	switch {
	case spec.SelfSigned != nil:
		return nil, nil
	case spec.CA != nil:
		key := client.ObjectKey{Namespace: namespace, Name: spec.CA.SecretName}
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
func (i issuers) ready(ctx context.Context, spec IssuerSpec, namespace string, generation int64) Condition {
	by, err := i.read(ctx, spec, namespace)
	switch {
	case errors.Is(err, errNotSimulated):
		return Condition{Status: corev1.ConditionFalse, Reason: "NotSimulated", Message: err.Error(),
			ObservedGeneration: generation}
	case err != nil:
		return Condition{Status: corev1.ConditionFalse, Reason: "ErrGetKeyPair",
			Message: "Error getting keypair for CA issuer: " + err.Error(), ObservedGeneration: generation}
	case by == nil:
		return Condition{Status: corev1.ConditionTrue, Reason: "IsReady", ObservedGeneration: generation}
	default:
		return Condition{Status: corev1.ConditionTrue, Reason: "KeyPairVerified", Message: "Signing CA verified",
			ObservedGeneration: generation}
	}
}

// issuerReconciler maintains the Ready condition of Issuers.
type issuerReconciler struct {
	client.Client
	issuers issuers
}

func (r *issuerReconciler) setup(mgr ctrl.Manager) error {
	signsWith := func(ctx context.Context, secret client.Object) (requests []reconcile.Request) {
		list := &IssuerList{}
		if err := r.List(ctx, list, client.InNamespace(secret.GetNamespace())); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the Issuers that a Secret may belong to", "secret", secret.GetName())
			return nil
		}
		for i := range list.Items {
			if ca := list.Items[i].Spec.CA; ca != nil && ca.SecretName == secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return requests
	}
	return ctrl.NewControllerManagedBy(mgr).Named("issuer").For(&Issuer{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(signsWith)).
		Complete(r)
}

// Reconcile sets an Issuer's condition.
func (r *issuerReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	issuer := &Issuer{}
	if err := r.Get(ctx, request.NamespacedName, issuer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := issuer.DeepCopy()
	issuer.Status.Conditions = setReady(issuer.Status.Conditions, metav1.Now(),
		r.issuers.ready(ctx, issuer.Spec, issuer.Namespace, issuer.Generation))
	return reconcile.Result{}, patchStatus(ctx, r.Client, issuer, before)
}

// clusterIssuerReconciler maintains the Ready condition of ClusterIssuers.
type clusterIssuerReconciler struct {
	client.Client
	issuers issuers
}

func (r *clusterIssuerReconciler) setup(mgr ctrl.Manager) error {
	signsWith := func(ctx context.Context, secret client.Object) (requests []reconcile.Request) {
		if secret.GetNamespace() != r.issuers.clusterNamespace {
			return nil
		}
		list := &ClusterIssuerList{}
		if err := r.List(ctx, list); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the ClusterIssuers that a Secret may belong to", "secret", secret.GetName())
			return nil
		}
		for i := range list.Items {
			if ca := list.Items[i].Spec.CA; ca != nil && ca.SecretName == secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return requests
	}
	return ctrl.NewControllerManagedBy(mgr).Named("clusterissuer").For(&ClusterIssuer{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(signsWith)).
		Complete(r)
}

// Reconcile sets a ClusterIssuer's condition.
func (r *clusterIssuerReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	issuer := &ClusterIssuer{}
	if err := r.Get(ctx, request.NamespacedName, issuer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := issuer.DeepCopy()
	issuer.Status.Conditions = setReady(issuer.Status.Conditions, metav1.Now(),
		r.issuers.ready(ctx, issuer.Spec, r.issuers.clusterNamespace, issuer.Generation))
	return reconcile.Result{}, patchStatus(ctx, r.Client, issuer, before)
}
