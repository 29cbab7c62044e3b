package certmanager

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// annotationInject requests a Certificate's authority: its value is namespace/name of the Certificate.
const annotationInject = group + "/inject-ca-from"

// injectable is a kind of object with a place for an authority.
type injectable struct {
	name string // of the controller
	kind schema.GroupVersionKind
	// set writes the authority, base64 as the API encodes it, into its fields of an object.
	set func(object map[string]any, ca string) error
}

var injectables = []injectable{
	{"inject-validatingwebhook", schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "ValidatingWebhookConfiguration"}, setInWebhooks},
	{"inject-mutatingwebhook", schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingWebhookConfiguration"}, setInWebhooks},
	{"inject-customresourcedefinition", schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}, setInConversion},
	{"inject-apiservice", schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
		setInAPIService},
}

func setInWebhooks(object map[string]any, ca string) error {
	webhooks, _, err := unstructured.NestedSlice(object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhooks[%d] is a %T", i, webhooks[i])
		}
		if err := unstructured.SetNestedField(webhook, ca, "clientConfig", "caBundle"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(object, webhooks, "webhooks")
}

func setInConversion(object map[string]any, ca string) error {
	strategy, _, err := unstructured.NestedString(object, "spec", "conversion", "strategy")
	if err != nil || strategy != "Webhook" {
		return err
	}
	return unstructured.SetNestedField(object, ca, "spec", "conversion", "webhook", "clientConfig", "caBundle")
}

func setInAPIService(object map[string]any, ca string) error {
	return unstructured.SetNestedField(object, ca, "spec", "caBundle")
}

// injectReconciler injects into one kind. It watches metadata only: CRDs are large, and few have the annotation.
type injectReconciler struct {
	client.Client
	reader client.Reader // past the cache
	what   injectable
}

func (r *injectReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(r.what.name).
		For(r.metadata()).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.askingFor)).
		Complete(r)
}

func (r *injectReconciler) metadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(r.what.kind)
	return object
}

// askingFor returns the objects that request the authority in a Certificate's Secret.
func (r *injectReconciler) askingFor(ctx context.Context, secret client.Object) (requests []reconcile.Request) {
	name := secret.GetAnnotations()[annotationCertificate]
	if name == "" {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.what.kind.GroupVersion().WithKind(r.what.kind.Kind + "List"))
	if err := r.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing objects to inject into", "kind", r.what.kind.Kind)
		return nil
	}
	for i := range list.Items {
		if list.Items[i].Annotations[annotationInject] == secret.GetNamespace()+"/"+name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile injects into one object. While the Certificate or its Secret does not exist it does nothing: the creation
// of the Secret triggers it again.
func (r *injectReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	metadata := r.metadata()
	if err := r.Get(ctx, request.NamespacedName, metadata); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	from := metadata.Annotations[annotationInject]
	if from == "" || !metadata.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	namespace, name, ok := strings.Cut(from, "/")
	if !ok {
		ctrl.LoggerFrom(ctx).Info("The annotation is not namespace/name of a Certificate", "annotation", annotationInject,
			"value", from)
		return reconcile.Result{}, nil
	}
	ca, err := r.authority(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil || len(ca) == 0 {
		return reconcile.Result{}, err
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(r.what.kind)
	if err := r.reader.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	if err := r.what.set(object.Object, base64.StdEncoding.EncodeToString(ca)); err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("injecting into %s %s: %w", r.what.kind.Kind,
			request.Name, err))
	}
	// With the resource version: a list that another client changed in the meantime must not be overwritten.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if data, err := client.MergeFrom(before).Data(object); err != nil || string(data) == "{}" {
		return reconcile.Result{}, err
	}
	err = r.Patch(ctx, object, patch)
	if apierrors.IsConflict(err) {
		return reconcile.Result{Requeue: true}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("injecting into %s %s: %w", r.what.kind.Kind, request.Name, err)
	}
	return reconcile.Result{}, nil
}

// authority is the ca.crt in a Certificate's Secret, empty while there is none.
func (r *injectReconciler) authority(ctx context.Context, key client.ObjectKey) ([]byte, error) {
	c := &Certificate{}
	if err := r.Get(ctx, key, c); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: c.Spec.SecretName}, secret); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if secret.Annotations[annotationCertificate] != key.Name {
		return nil, nil
	}
	return secret.Data[corev1.ServiceAccountRootCAKey], nil
}
