// Package namespace creates the namespace of a cluster's Cluster API objects, and deletes it where Slipway created it
// and it holds nothing else.
package namespace

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
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/internal/consequences"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/wait"
)

// The label of a namespace that Slipway created.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "slipway"
)

// rootCertificates is the ConfigMap that Kubernetes puts into every namespace.
const rootCertificates = "kube-root-ca.crt"

// Ensure creates the namespace of the cluster's objects where it is missing. The default namespace is always there.
func Ensure(ctx context.Context, cfg config.Config, say flow.Say, c *kube.Cluster) error {
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

// Remove deletes the namespace of a cluster whose objects are gone, where Slipway created it. A namespace that holds
// anything besides what a cluster of this name leaves behind is kept, and so is the default namespace.
func Remove(ctx context.Context, cfg config.Config, say flow.Say, c *kube.Cluster) error {
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
	if err != nil {
		return fmt.Errorf("find out what is in namespace %s, before it is deleted: %w", cfg.Namespace, err)
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

// coreKinds are the kinds, besides those of Cluster API, whose objects keep a namespace: a run that works in it as a
// Pod, and a state or anything else that is stored there.
var coreKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
}

// held names the objects in the namespace that are not the cluster's.
func held(ctx context.Context, cfg config.Config, c *kube.Cluster) (names []string, err error) {
	kinds, err := clusterapi.Kinds(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, kind := range slices.Concat(kinds, coreKinds) {
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, l, client.InNamespace(cfg.Namespace)); err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		for i := range l.Items {
			if o := &l.Items[i]; !leftBehind(cfg, kind, o) {
				names = append(names, kind.Kind+" "+o.Name)
			}
		}
	}
	return names, nil
}

// leftBehind tells whether an object is one that the cluster's deletion leaves, or that Kubernetes puts everywhere. The
// Cluster object itself never is.
func leftBehind(cfg config.Config, kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata) bool {
	switch {
	case kind.GroupKind() == clusterapi.ClusterKind:
		return false
	case o.Labels[capi.ClusterNameLabel] == cfg.ClusterName, o.Labels[consequences.OwnerLabel] == cfg.ClusterName:
		return true
	case kind.Kind == "Secret":
		return o.Name == config.TokenSecretName || clusterapi.NamedFor(o.Name, cfg.ClusterName)
	}
	return kind.Kind == "ConfigMap" && o.Name == rootCertificates
}

// summary names at most three of several.
func summary(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
