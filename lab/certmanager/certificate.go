package certmanager

import (
	"context"
	"crypto"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// certificateReconciler maintains the Secrets of Certificates.
type certificateReconciler struct {
	client.Client
	issuers  issuers
	events   record.EventRecorder
	ownerRef bool // --enable-certificate-owner-ref: the Secret goes with its Certificate
}

func (r *certificateReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificate").
		For(&Certificate{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(certificateOf)).
		Watches(&Issuer{}, handler.EnqueueRequestsFromMapFunc(r.issuedBy("Issuer"))).
		Watches(&ClusterIssuer{}, handler.EnqueueRequestsFromMapFunc(r.issuedBy("ClusterIssuer"))).
		Complete(r)
}

// certificateOf names the Certificate that a Secret was issued for.
func certificateOf(_ context.Context, secret client.Object) []reconcile.Request {
	name := secret.GetAnnotations()[annotationCertificate]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: secret.GetNamespace(), Name: name}}}
}

// issuedBy names the Certificates of an Issuer or ClusterIssuer.
func (r *certificateReconciler) issuedBy(kind string) handler.MapFunc {
	return func(ctx context.Context, issuer client.Object) (requests []reconcile.Request) {
		list := &CertificateList{}
		if err := r.List(ctx, list, client.InNamespace(issuer.GetNamespace())); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the Certificates of an issuer", "kind", kind, "name", issuer.GetName())
			return nil
		}
		for i := range list.Items {
			c := &list.Items[i]
			annotations := issuerAnnotations(c)
			if annotations[annotationIssuerKind] == kind && annotations[annotationIssuerName] == issuer.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
			}
		}
		return requests
	}
}

// Reconcile issues a Certificate's Secret if it is missing or does not match, and schedules its renewal.
func (r *certificateReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	c := &Certificate{}
	if err := r.Get(ctx, request.NamespacedName, c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !c.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	before := c.DeepCopy()
	status := &c.Status
	notReady := func(reason, message string) error {
		status.Conditions = setReady(status.Conditions, metav1.Now(), Condition{
			Status: corev1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: c.Generation,
		})
		return patchStatus(ctx, r.Client, c, before)
	}
	if what := notSimulated(&c.Spec); what != "" {
		return reconcile.Result{}, notReady("NotSimulated", what+" is not simulated by this stand-in for cert-manager")
	}

	secret := &corev1.Secret{}
	switch err := r.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Spec.SecretName}, secret); {
	case apierrors.IsNotFound(err):
		secret = nil
	case err != nil:
		return reconcile.Result{}, err
	}
	now := time.Now()
	have, wrong := inspect(c, secret, now)
	if wrong != nil {
		by, err := r.issuers.authority(ctx, c)
		if err != nil {
			// The issuer's next change triggers this Certificate again.
			return reconcile.Result{}, notReady(wrong.reason, fmt.Sprintf("%s; the issuer cannot sign: %s", wrong.message, err))
		}
		have, err = r.issue(ctx, c, secret, have, by, now)
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
			return reconcile.Result{Requeue: true}, nil // the cache is behind: try again
		}
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("issuing Certificate %s: %w", request, err)
		}
		status.Revision = ptr.To(ptr.Deref(status.Revision, 0) + 1)
		r.events.Event(c, corev1.EventTypeNormal, "Issuing", wrong.message)
	}

	renewal := renewalTime(&c.Spec, have.certificate.NotBefore, have.certificate.NotAfter)
	status.NotBefore = &metav1.Time{Time: have.certificate.NotBefore}
	status.NotAfter = &metav1.Time{Time: have.certificate.NotAfter}
	status.RenewalTime = &metav1.Time{Time: renewal}
	status.Conditions = setReady(status.Conditions, metav1.NewTime(now), Condition{
		Status: corev1.ConditionTrue, Reason: "Ready", Message: "Certificate is up to date and has not expired",
		ObservedGeneration: c.Generation,
	})
	return reconcile.Result{RequeueAfter: time.Until(renewal)}, patchStatus(ctx, r.Client, c, before)
}

// patchStatus patches an object's status if it changed.
func patchStatus(ctx context.Context, c client.Client, object, before client.Object) error {
	patch := client.MergeFrom(before)
	if data, err := patch.Data(object); err != nil || string(data) == "{}" {
		return err
	}
	if err := c.Status().Patch(ctx, object, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func notSimulated(spec *CertificateSpec) string {
	switch {
	case spec.LiteralSubject != "":
		return "spec.literalSubject"
	case len(spec.Keystores) > 0:
		return "spec.keystores"
	case len(spec.AdditionalOutputFormats) > 0:
		return "spec.additionalOutputFormats"
	default:
		return ""
	}
}

// issue signs a certificate and writes it into the Secret, which is nil if it does not exist. The key in have is used
// again only where the Certificate never wants another.
func (r *certificateReconciler) issue(
	ctx context.Context, c *Certificate, secret *corev1.Secret, have *held, by *authority, now time.Time,
) (*held, error) {
	var key crypto.Signer
	if have != nil && ptr.Deref(c.Spec.PrivateKey, PrivateKey{}).RotationPolicy == "Never" && keyFits(&c.Spec, have.key) {
		key = have.key
	} else {
		var err error
		if key, err = newKey(&c.Spec); err != nil {
			return nil, fmt.Errorf("making a key: %w", err)
		}
	}
	result, err := sign(&c.Spec, key, by, now)
	if err != nil {
		return nil, err
	}
	chain, err := parseCertificates(result.certificate)
	if err != nil {
		return nil, err
	}

	exists := secret != nil
	if !exists {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Spec.SecretName},
			Type:       corev1.SecretTypeTLS, // cannot be changed later
		}
	} else {
		secret = secret.DeepCopy()
	}
	describe(c, secret)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[corev1.TLSCertKey] = result.certificate
	secret.Data[corev1.TLSPrivateKeyKey] = result.key
	secret.Data[corev1.ServiceAccountRootCAKey] = result.ca
	if r.ownerRef {
		if err := controllerutil.SetControllerReference(c, secret, r.Scheme()); err != nil {
			return nil, err
		}
	}
	if exists {
		err = r.Update(ctx, secret)
	} else {
		err = r.Create(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("writing Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return &held{certificate: chain[0], key: key}, nil
}

// describe puts on a Secret what it was issued for and by whom.
func describe(c *Certificate, secret *corev1.Secret) {
	annotations := map[string]string{
		annotationCertificate: c.Name,
		annotationCommonName:  c.Spec.CommonName,
		annotationAltNames:    strings.Join(c.Spec.DNSNames, ","),
		annotationIPs:         strings.Join(c.Spec.IPAddresses, ","),
		annotationURIs:        strings.Join(c.Spec.URIs, ","),
	}
	maps.Copy(annotations, issuerAnnotations(c))
	labels := map[string]string{labelControlled: "true"}
	if c.Spec.SecretTemplate != nil {
		maps.Copy(labels, c.Spec.SecretTemplate.Labels)
		maps.Copy(annotations, c.Spec.SecretTemplate.Annotations)
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	maps.Copy(secret.Annotations, annotations)
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	maps.Copy(secret.Labels, labels)
}
