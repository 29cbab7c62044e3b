package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// discoveryWithin bounds a question about the kinds that an API server offers. An API server that answers does so
// within a second; one that accepts connections and is silent would hold the asker for good, as the question knows no
// context.
const discoveryWithin = 10 * time.Second

// newMapper finds the paths of kinds through the client that reads objects too.
func newMapper(config *rest.Config, plain *http.Client) (meta.RESTMapper, error) {
	return apiutil.NewDynamicRESTMapper(config, &http.Client{Transport: plain.Transport, Timeout: discoveryWithin})
}

// mapped finds out under which path the objects of a kind are, as long as ctx lets it and no longer: without it the
// first call about a kind would not end with its context. What it found is remembered.
func (c *Cluster) mapped(ctx context.Context, of runtime.Object) error {
	gvk, err := c.GroupVersionKindFor(of)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	found := make(chan error, 1)
	go func() {
		_, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		found <- err
	}()
	select {
	case err := <-found:
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			return &silentError{c.Host(), err}
		}
		return err
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return &silentError{c.Host(), cause}
		}
		return fmt.Errorf("ask %s for the kind %s: %w", c.Host(), gvk.Kind, context.Cause(ctx))
	}
}

// silentError is of an API server that did not say which kinds it offers.
type silentError struct {
	host string
	err  error
}

// Error implements error.
func (e *silentError) Error() string { return e.host + " did not answer in time" }

func (e *silentError) Unwrap() error { return e.err }

// Create makes an object.
func (c *Cluster) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.served(ctx, o, func() error { return c.WithWatch.Create(ctx, o, opts...) })
}

// Update replaces an object.
func (c *Cluster) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.served(ctx, o, func() error { return c.WithWatch.Update(ctx, o, opts...) })
}

// Patch changes an object.
func (c *Cluster) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	err := c.served(ctx, o, func() error { return c.WithWatch.Patch(ctx, o, p, opts...) })
	return c.patchStored(ctx, err, o, p, opts)
}

// Delete takes an object away.
func (c *Cluster) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	err := c.served(ctx, o, func() error { return c.WithWatch.Delete(ctx, o, opts...) })
	return c.deleteStored(ctx, err, o, opts)
}

// Watch tells of changes to objects.
func (c *Cluster) Watch(ctx context.Context, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	if err := c.mapped(ctx, l); err != nil {
		return nil, err
	}
	return c.WithWatch.Watch(ctx, l, opts...)
}
