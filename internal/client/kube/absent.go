package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
	Kind: "CustomResourceDefinition"}

// Absent reports whether err is the answer of a reachable cluster that it has no such object, or no such kind. That a
// kind is missing from what the API server offers is no such answer: for a while after its start it does not offer
// everything that it has. So every request asks for the kind's definition before it lets such an error pass.
func Absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Verdict is the verdict of flow on an error of asking: that an object or a kind does not exist is an answer, every
// other error is none.
func Verdict(err error) flow.Verdict {
	if Absent(err) {
		return flow.Gone("%v", err)
	}
	return flow.Unknown(err)
}

// UnknownKind reports whether err is about an object whose kind a reachable cluster does not serve (yet).
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

// servedWithin is how long an API server that answers may take to offer all its kinds, before that is an error: a
// second or two after its start, and longer than five on a machine that starts more at once. Behind a load balancer
// that can be one of several, the newest control plane machine's say, while the others offer everything.
const (
	servedWithin = 30 * time.Second
	servedEvery  = 500 * time.Millisecond
)

// Get reads an object; see Absent.
func (c *Cluster) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := c.served(ctx, o, func() error { return c.WithWatch.Get(ctx, key, o, opts...) })
	return c.getStored(ctx, err, key, o, opts)
}

// List reads objects; see Absent.
func (c *Cluster) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	err := c.served(ctx, l, func() error { return c.WithWatch.List(ctx, l, opts...) })
	return c.listStored(ctx, err, l, opts)
}

// served makes a request about objects of a kind, again for a while where the kind is not offered but may well be
// there: a write that was answered so was not taken.
func (c *Cluster) served(ctx context.Context, of runtime.Object, request func() error) error {
	deadline := time.After(servedWithin)
	var last error // why the kind may be there all the same
	for {
		err := c.mapped(ctx, of)
		if err == nil {
			err = request()
		}
		if last != nil && ctx.Err() != nil {
			return last
		}
		if !unserved(err) {
			return err
		}
		gvk, _ := c.GroupVersionKindFor(of)
		kind := schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}
		reason := c.mayExist(ctx, kind)
		if reason == "" {
			return err
		}
		last = &unservedError{kind, reason}
		select {
		case <-ctx.Done():
			return last
		case <-deadline:
			return last
		case <-time.After(servedEvery):
		}
	}
}

// mayExist says why a kind that is not offered may be there all the same; empty if it is not.
func (c *Cluster) mayExist(ctx context.Context, kind schema.GroupKind) string {
	if len(c.Scheme().VersionsForGroupKind(kind)) > 0 {
		return "every cluster has this kind"
	}
	// A definition's name is made of the kind's plural, guessed here as the API server does for objects that it knows.
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(definitionKind)
	err := c.mapped(ctx, definition)
	if err == nil {
		err = c.WithWatch.Get(ctx, client.ObjectKey{Name: plural.GroupResource().String()}, definition)
	}
	switch {
	case err == nil:
		return "has its definition"
	case apierrors.IsNotFound(err) && !unserved(err):
		return ""
	default:
		return fmt.Sprintf("whether it has its definition is not known (%v)", err)
	}
}

// unserved reports whether an error says that the API server does not know a kind, or the path of its objects.
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
