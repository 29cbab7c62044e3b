package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	//lint:ignore SA1019 it has the conversion, as long as Cluster API serves v1beta1
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// Cores of Cluster API from v1.11 on store their objects as v1beta2, and the API server has the core's webhook convert
// them to v1beta1 for each read. In a cluster that manages itself the webhook may have run on the server that is lost.
// So what cannot be converted there is read as it is stored, and converted by the same code here.

// conversionFailed begins the API server's complaint that a conversion webhook did not convert what is stored.
const conversionFailed = "conversion webhook for "

// unconverted reports whether err says that the API server has objects of a kind and that their conversion failed.
// stored is the version in which these can be read.
func unconverted(err error, kind schema.GroupVersionKind) (stored schema.GroupVersion, is bool) {
	var status apierrors.APIStatus
	return clusterv1.GroupVersion, kind.GroupVersion() == clusterv1beta1.GroupVersion && errors.As(err, &status) &&
		strings.Contains(status.Status().Message, conversionFailed+clusterv1.GroupVersion.String())
}

// getStored reads an object as it is stored, where err says that it cannot be converted.
func (c *Cluster) getStored(ctx context.Context, err error, key client.ObjectKey, o client.Object,
	opts []client.GetOption) error {
	into, ok := o.(*unstructured.Unstructured)
	stored, is := unconverted(err, o.GetObjectKind().GroupVersionKind())
	if !ok || !is {
		return err
	}
	kind := into.GroupVersionKind()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(stored.WithKind(kind.Kind))
	if c.served(ctx, found, func() error { return c.WithWatch.Get(ctx, key, found, opts...) }) != nil {
		return err
	}
	into.Object, err = c.convert(found, kind)
	return err
}

// listStored reads objects as they are stored, where err says that they cannot be converted.
func (c *Cluster) listStored(ctx context.Context, err error, l client.ObjectList, opts []client.ListOption) error {
	into, ok := l.(*unstructured.UnstructuredList)
	stored, is := unconverted(err, l.GetObjectKind().GroupVersionKind())
	if !ok || !is {
		return err
	}
	kind := into.GroupVersionKind()
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(stored.WithKind(kind.Kind))
	if c.served(ctx, found, func() error { return c.WithWatch.List(ctx, found, opts...) }) != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	for i := range found.Items {
		if found.Items[i].Object, err = c.convert(&found.Items[i], kind); err != nil {
			return err
		}
	}
	found.SetGroupVersionKind(into.GroupVersionKind())
	*into = *found
	return nil
}

// patchStored changes the metadata of an object by the version in which it is stored, where err says that it cannot be
// converted. Metadata are the same in each version; another patch is left to the conversion.
func (c *Cluster) patchStored(ctx context.Context, err error, o client.Object, p client.Patch,
	opts []client.PatchOption) error {
	stored, is := unconverted(err, o.GetObjectKind().GroupVersionKind())
	if !is || p.Type() != types.MergePatchType {
		return err
	}
	data, dataErr := p.Data(o)
	var changes map[string]any
	if dataErr != nil || json.Unmarshal(data, &changes) != nil || len(changes) != 1 || changes["metadata"] == nil {
		return err
	}
	as := inVersion(stored, o)
	return c.served(ctx, as, func() error {
		return c.WithWatch.Patch(ctx, as, client.RawPatch(p.Type(), data), opts...)
	})
}

// inVersion names an object in another version.
func inVersion(version schema.GroupVersion, o client.Object) *unstructured.Unstructured {
	as := &unstructured.Unstructured{}
	as.SetGroupVersionKind(version.WithKind(o.GetObjectKind().GroupVersionKind().Kind))
	as.SetNamespace(o.GetNamespace())
	as.SetName(o.GetName())
	return as
}

// deleteStored deletes an object by the version in which it is stored, where err says that it cannot be converted.
func (c *Cluster) deleteStored(ctx context.Context, err error, o client.Object, opts []client.DeleteOption) error {
	stored, is := unconverted(err, o.GetObjectKind().GroupVersionKind())
	if !is {
		return err
	}
	as := inVersion(stored, o)
	return c.served(ctx, as, func() error { return c.WithWatch.Delete(ctx, as, opts...) })
}

// converting guards the library's one function that finds the version of a kind that an object refers to.
var converting sync.Mutex

// coreTypes are the types of both versions.
var coreTypes = sync.OnceValues(func() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clusterv1.AddToScheme(scheme), clusterv1beta1.AddToScheme(scheme))
})

// convert makes the content of a stored object in another version, as Cluster API's webhook does.
func (c *Cluster) convert(stored *unstructured.Unstructured, to schema.GroupVersionKind) (map[string]any, error) {
	failed := func(err error) (map[string]any, error) {
		return nil, fmt.Errorf("convert %s from %s to %s: %w", Describe(stored), stored.GetAPIVersion(),
			to.GroupVersion(), err)
	}
	scheme, err := coreTypes()
	if err != nil {
		return failed(err)
	}
	from, err := scheme.New(stored.GroupVersionKind())
	if err != nil {
		return failed(err)
	}
	into, err := scheme.New(to)
	if err != nil {
		return failed(err)
	}
	hub, isHub := from.(conversion.Hub)
	spoke, isSpoke := into.(conversion.Convertible)
	if !isHub || !isSpoke {
		return failed(errors.New("Cluster API has no conversion of this kind"))
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, hub); err != nil {
		return failed(err)
	}
	converting.Lock()
	defer converting.Unlock()
	clusterv1beta1.SetAPIVersionGetter(func(kind schema.GroupKind) (string, error) {
		mapping, err := c.RESTMapper().RESTMapping(kind)
		if err != nil {
			return "", err
		}
		return mapping.GroupVersionKind.GroupVersion().String(), nil
	})
	if err := spoke.ConvertFrom(hub); err != nil {
		return failed(err)
	}
	spoke.GetObjectKind().SetGroupVersionKind(to)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spoke)
	if err != nil {
		return failed(err)
	}
	return content, nil
}
