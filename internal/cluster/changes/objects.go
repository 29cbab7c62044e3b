package changes

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
)

var (
	configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secretKind    = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
)

// LiveObjects are the objects of a cluster in the cluster that manages it, as far as applying the manifests may change
// them.
type LiveObjects struct {
	Cluster string
	// wanted are those that the manifests have too, and the server templates that these refer to.
	Wanted []unstructured.Unstructured
	// machines are the cluster's Machines.
	Machines []unstructured.Unstructured
	// others are all objects of Cluster API's kinds in the namespace, and the ConfigMaps and Secrets that carry the
	// mark of the cluster's manifests.
	Others []unstructured.Unstructured
	// Pools tells that the objects that are applied are those of the worker pools: what is no longer among them is
	// looked for there alone.
	Pools bool
}

// ReadLiveObjects reads what applying the rendered objects may change. It asks for objects that are named, and lists
// those of the namespace; it changes nothing.
func ReadLiveObjects(
	ctx context.Context, manager *kube.Cluster, namespace, cluster string, rendered []*unstructured.Unstructured,
) (LiveObjects, error) {
	live := LiveObjects{Cluster: cluster}
	read := func(kind schema.GroupVersionKind, namespace, name string) error {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		err := manager.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		switch {
		case kube.Absent(err):
			return nil
		case err != nil:
			return fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
		}
		if live.Find(kind.GroupKind(), name) == nil {
			live.Wanted = append(live.Wanted, *o)
		}
		return nil
	}
	for _, o := range rendered {
		if err := read(o.GroupVersionKind(), o.GetNamespace(), o.GetName()); err != nil {
			return LiveObjects{}, err
		}
	}
	for _, o := range slices.Clone(live.Wanted) {
		if name := orders.Template(&o); name != "" {
			if err := read(capi.MachineTemplateKind, o.GetNamespace(), name); err != nil {
				return LiveObjects{}, err
			}
		}
	}
	var err error
	live.Machines, err = capi.List(ctx, manager, namespace, capi.MachineKind, cluster)
	if err != nil && !kube.Absent(err) {
		return LiveObjects{}, err
	}
	live.Others, err = listOthers(ctx, manager, namespace, cluster)
	return live, err
}

// listOthers lists what may have been applied and is no longer in the manifests, and what may refer to it.
func listOthers(ctx context.Context, manager *kube.Cluster, namespace,
	cluster string) ([]unstructured.Unstructured, error) {
	kinds, err := capi.MovedKinds(ctx, manager)
	if err != nil {
		return nil, err
	}
	var others []unstructured.Unstructured
	add := func(kind schema.GroupVersionKind, options ...client.ListOption) error {
		l := capi.ListOf(kind)
		if err := manager.List(ctx, l, append(options, client.InNamespace(namespace))...); err != nil {
			return fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		for i := range l.Items {
			l.Items[i].SetGroupVersionKind(kind)
		}
		others = append(others, l.Items...)
		return nil
	}
	for _, kind := range kinds {
		if err := add(kind); err != nil {
			return nil, err
		}
	}
	for _, kind := range []schema.GroupVersionKind{configMapKind, secretKind} {
		if err := add(kind, client.MatchingLabels{OwnerLabel: cluster}); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// Find is a live object that the manifests have, or refer to; nil where it is not there.
func (l LiveObjects) Find(kind schema.GroupKind, name string) *unstructured.Unstructured {
	return findObject(l.Wanted, kind, name)
}

func findObject(all []unstructured.Unstructured, kind schema.GroupKind, name string) *unstructured.Unstructured {
	for i := range all {
		if o := &all[i]; o.GroupVersionKind().GroupKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

// serversOf are the live names of the servers of a control plane or a MachineDeployment.
func (l LiveObjects) serversOf(o *unstructured.Unstructured) []string {
	var names []string
	for i := range l.Machines {
		m := &l.Machines[i]
		_, ofControlPlane := m.GetLabels()[capi.ControlPlaneLabel]
		mine := ofControlPlane
		if o.GroupVersionKind().GroupKind() != capi.TalosControlPlaneKind.GroupKind() {
			mine = m.GetLabels()[capi.DeploymentLabel] == o.GetName()
		}
		if name := capi.Text(m, "spec", "infrastructureRef", "name"); mine && name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
