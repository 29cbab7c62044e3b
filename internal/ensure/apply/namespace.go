package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// The label of a namespace that Slipway created.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "slipway"
)

// The ConfigMap and the ServiceAccount that Kubernetes puts into every namespace.
const (
	rootCertificates = "kube-root-ca.crt"
	defaultAccount   = "default"
)

// Namespace creates the namespace of the cluster's objects where it is missing. The default namespace is always there.
func Namespace(ctx context.Context, cfg config.Config, say flow.Say, c *kube.Cluster) error {
	if cfg.Namespace == config.DefaultNamespace {
		return nil
	}
	w := wait.Wait{What: "the API server to have namespace " + cfg.Namespace, Within: wait.TakenWithin}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		is := &corev1.Namespace{}
		err := c.Get(ctx, client.ObjectKey{Name: cfg.Namespace}, is)
		switch {
		case err == nil && is.DeletionTimestamp != nil:
			return "it is being deleted", nil
		case err == nil:
			return "", nil
		case !apierrors.IsNotFound(err):
			return "", unlessUnwell(fmt.Errorf("look for namespace %s: %w", cfg.Namespace, err))
		}
		say("creating namespace %s", cfg.Namespace)
		err = c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cfg.Namespace,
			Labels: map[string]string{managedByLabel: managedBy}}})
		if err != nil && !apierrors.IsAlreadyExists(err) { // another run's is as good
			return "", unlessUnwell(fmt.Errorf("create namespace %s: %w", cfg.Namespace, err))
		}
		return "", nil
	})
}

// unlessUnwell makes an error final, unless it is one of an API server that is silent or unwell.
func unlessUnwell(err error) error {
	if kube.Unwell(err) {
		return err
	}
	return wait.Final(err)
}

// RemoveNamespace deletes the namespace of a cluster whose objects are gone, where Slipway created it. A namespace
// that holds objects of any kind besides what a cluster of this name leaves behind is kept, and so is one of which
// that cannot be found out, and the default namespace.
func RemoveNamespace(ctx context.Context, cfg config.Config, say flow.Say, c *kube.Cluster) error {
	if cfg.Namespace == config.DefaultNamespace {
		return nil
	}
	is := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: cfg.Namespace}, is)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for namespace %s: %w", cfg.Namespace, err)
	case is.DeletionTimestamp != nil:
		return nil
	case is.Labels[managedByLabel] != managedBy:
		say("leaving namespace %s of the management cluster, which Slipway did not create", cfg.Namespace)
		return nil
	}
	others, err := held(ctx, cfg, c)
	switch {
	case err != nil && (ctx.Err() != nil || kube.Transient(err)):
		return fmt.Errorf("find out what is in namespace %s, before it is deleted: %w", cfg.Namespace, err)
	case err != nil:
		say("leaving namespace %s of the management cluster: what others have in it, and would lose, is not known: %v; "+
			"delete it once it holds nothing that is needed", cfg.Namespace, err)
		return nil
	}
	if len(others) > 0 {
		say("leaving namespace %s of the management cluster: it holds %s", cfg.Namespace, summary(others))
		return nil
	}
	say("deleting namespace %s of the management cluster", cfg.Namespace)
	err = c.Delete(ctx, is, client.Preconditions{UID: &is.UID})
	if err != nil && !kube.Absent(err) {
		return fmt.Errorf("delete namespace %s: %w", cfg.Namespace, err)
	}
	return nil
}

// passing are the kinds that do not keep a namespace: they are written beside what they are about, or expire.
var passing = []schema.GroupKind{
	{Kind: "Event"}, {Group: "events.k8s.io", Kind: "Event"}, {Group: "coordination.k8s.io", Kind: "Lease"},
	{Kind: "Endpoints"}, {Group: "discovery.k8s.io", Kind: "EndpointSlice"},
}

// metrics reports whether a group has measurements instead of objects.
func metrics(group string) bool {
	return group == "metrics.k8s.io" || strings.HasSuffix(group, ".metrics.k8s.io")
}

// held names the objects in the namespace that are not the cluster's, of every kind that goes with a namespace. It
// fails where one kind cannot be listed.
func held(ctx context.Context, cfg config.Config, c *kube.Cluster) (names []string, err error) {
	kinds, unknown, err := c.NamespacedKinds(ctx, "list", "delete")
	if err != nil {
		return nil, err
	}
	for group, err := range unknown {
		if !metrics(group.Group) {
			return nil, fmt.Errorf("the API server does not tell the kinds of %s: %w", group, err)
		}
	}
	for _, kind := range kinds {
		if metrics(kind.Group) || slices.Contains(passing, kind.GroupKind()) {
			continue
		}
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, l, client.InNamespace(cfg.Namespace)); err != nil {
			return nil, fmt.Errorf("list the objects of kind %s: %w", kind.GroupKind(), err)
		}
		for i := range l.Items {
			if o := &l.Items[i]; !leftBehind(cfg, kind.GroupKind(), o) {
				names = append(names, kind.Kind+" "+o.Name)
			}
		}
	}
	return names, nil
}

// leftBehind tells whether an object is one that the cluster's deletion leaves, that Kubernetes puts everywhere, or
// that belongs to another object, which counts. The Cluster object itself never is.
func leftBehind(cfg config.Config, kind schema.GroupKind, o *metav1.PartialObjectMetadata) bool {
	switch {
	case kind == capi.ClusterKind.GroupKind():
		return false
	case o.Labels[capi.ClusterNameLabel] == cfg.ClusterName, o.Labels[changes.OwnerLabel] == cfg.ClusterName:
		return true
	}
	switch kind {
	case schema.GroupKind{Kind: "Secret"}:
		return o.Name == config.TokenSecretName || capi.NamedFor(o.Name, cfg.ClusterName)
	case schema.GroupKind{Kind: "ConfigMap"}:
		return o.Name == rootCertificates
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return o.Name == defaultAccount
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Group: "apps", Kind: "ControllerRevision"}:
		return metav1.GetControllerOfNoCopy(o) != nil
	}
	return false
}

// summary names at most three of several.
func summary(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
