package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Absent tells whether err is the answer of a reachable cluster that it has no such object, or no such kind. That a kind is
// missing from what the API server offers is no such answer: for a while after its start it does not offer everything that it
// has. So Get and List ask for the kind's definition before they let such an error pass.
func Absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// UnknownKind tells whether err is about an object whose kind a reachable cluster does not serve (yet).
func UnknownKind(err error) bool {
	return meta.IsNoMatchError(err) || errors.As(err, new(*unservedError))
}

// unservedError says that a kind is not served at the moment, which tells nothing about its objects.
type unservedError struct {
	kind   schema.GroupKind
	reason string
}

// Error implements error.
func (e *unservedError) Error() string {
	return fmt.Sprintf("the API server does not serve %s now, but %s; it may have just started", e.kind, e.reason)
}

// Get reads an object; see Absent.
func (c *Cluster) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.WithWatch.Get(ctx, key, o, opts...); err != nil {
		gvk, _ := c.GroupVersionKindFor(o)
		return c.judge(ctx, gvk.GroupKind(), err)
	}
	return nil
}

// List reads objects; see Absent.
func (c *Cluster) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := c.WithWatch.List(ctx, l, opts...); err != nil {
		gvk, _ := c.GroupVersionKindFor(l)
		return c.judge(ctx, schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}, err)
	}
	return nil
}

// judge lets an error pass, but not one that a kind does not exist, unless that is sure.
func (c *Cluster) judge(ctx context.Context, kind schema.GroupKind, err error) error {
	if !unserved(err) {
		return err
	}
	if len(c.Scheme().VersionsForGroupKind(kind)) > 0 {
		return &unservedError{kind, "every cluster has this kind"}
	}
	// A definition's name is made of the kind's plural, guessed here as the API server does for objects that it knows.
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(definitionKind)
	switch asked := c.WithWatch.Get(ctx, client.ObjectKey{Name: plural.GroupResource().String()}, definition); {
	case asked == nil:
		return &unservedError{kind, "has its definition"}
	case apierrors.IsNotFound(asked) && !unserved(asked):
		return err
	default:
		return &unservedError{kind, fmt.Sprintf("whether it has its definition is not known (%v)", asked)}
	}
}

// unserved tells whether an error says that the API server does not know a kind, or the path of its objects.
func unserved(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse { // a bare "404 page not found"
			return true
		}
	}
	return false
}
