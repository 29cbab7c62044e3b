// Package clusterapi knows which objects of a namespace make up the clusters that Cluster API manages there, and
// compares them across two management clusters. It reads only.
package clusterapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels and annotations of Cluster API and clusterctl.
const (
	// MoveLabel makes clusterctl move an object that no owner ties to a cluster.
	MoveLabel = "clusterctl.cluster.x-k8s.io/move"
	// DeleteForMove is the annotation that clusterctl's mover leaves on an object at the source in place of all others,
	// a moment before it deletes the object.
	DeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"

	crdLabel         = "clusterctl.cluster.x-k8s.io" // on the definitions of all kinds that clusterctl moves
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
	clusterGroup     = "cluster.x-k8s.io"
	addonsGroup      = "addons.cluster.x-k8s.io"
)

// ClusterKind is the kind of the object that everything else of a cluster belongs to.
var ClusterKind = schema.GroupKind{Group: clusterGroup, Kind: "Cluster"}

var (
	crdKind    = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	secretKind = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	coreKinds  = []schema.GroupVersionKind{secretKind, {Version: "v1", Kind: "ConfigMap"}}
)

// Key names an object within a namespace, the same in the source and the target of a move.
type Key struct {
	Kind schema.GroupKind
	Name string
}

// KeyOf is an object's key.
func KeyOf(o *unstructured.Unstructured) Key {
	return Key{o.GroupVersionKind().GroupKind(), o.GetName()}
}

// String is "Machine k8s-control-plane-6f4dm".
func (k Key) String() string { return k.Kind.Kind + " " + k.Name }

// Inventory is what belongs to the clusters of a namespace, by kind and name.
type Inventory struct {
	// Moved are the objects that clusterctl moves: the clusters, what they own, and what carries MoveLabel.
	Moved []unstructured.Unstructured
	// Loose are Secrets that belong to a cluster by label or name only: clusterctl leaves them behind.
	Loose []unstructured.Unstructured
}

// Read takes the inventory of a namespace. extra names Secrets that belong to it as well. Where Cluster API is not
// installed there is nothing, and that is no error.
func Read(ctx context.Context, c client.Reader, namespace string, extra ...string) (Inventory, error) {
	kinds, err := Kinds(ctx, c)
	if err != nil || len(kinds) == 0 {
		return Inventory{}, err
	}
	var all []unstructured.Unstructured
	for _, kind := range append(kinds, coreKinds...) {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		// An API server that has just started may not serve a kind yet: that says nothing about its objects.
		if err := c.List(ctx, l, client.InNamespace(namespace)); err != nil {
			return Inventory{}, fmt.Errorf("list %ss in namespace %s: %w", kind.Kind, namespace, err)
		}
		for i := range l.Items {
			l.Items[i].SetGroupVersionKind(kind)
		}
		all = append(all, l.Items...)
	}
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return sortOut(all, extra), nil
}

// Clusters lists the Cluster objects of a cluster, of all namespaces or of those that the options select. None where
// Cluster API is not installed; an error where it is, but is not served (yet).
func Clusters(ctx context.Context, c client.Reader, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	kinds, err := Kinds(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		if kind.GroupKind() != ClusterKind {
			continue
		}
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, l, opts...); err != nil {
			return nil, fmt.Errorf("list the Cluster objects: %w", err)
		}
		return l.Items, nil
	}
	return nil, nil
}

// Kinds are the namespaced kinds that clusterctl moves, at the versions in which they are stored. None where Cluster
// API is not installed.
func Kinds(ctx context.Context, c client.Reader) ([]schema.GroupVersionKind, error) {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(crdKind.GroupVersion().WithKind(crdKind.Kind + "List"))
	if err := c.List(ctx, l, client.HasLabels{crdLabel}); err != nil {
		return nil, fmt.Errorf("list the kinds of Cluster API: %w", err)
	}
	var kinds []schema.GroupVersionKind
	for _, crd := range l.Items {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			if name, _ := version["name"].(string); version["storage"] == true && scope == "Namespaced" {
				kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: name, Kind: kind})
			}
		}
	}
	return kinds, nil
}

// sortOut follows the owners, as clusterctl does.
func sortOut(all []unstructured.Unstructured, extra []string) Inventory {
	moved := map[types.UID]bool{}
	known := map[types.UID]bool{}
	var clusters []string
	for i := range all {
		o := &all[i]
		known[o.GetUID()] = true
		if isRoot(o) {
			moved[o.GetUID()] = true
		}
		if KeyOf(o).Kind == ClusterKind {
			clusters = append(clusters, o.GetName())
		}
	}
	owned := func(o *unstructured.Unstructured, by map[types.UID]bool) bool {
		for _, owner := range o.GetOwnerReferences() {
			if by[owner.UID] {
				return true
			}
		}
		return false
	}
	for grown := true; grown; {
		grown = false
		for i := range all {
			o := &all[i]
			if moved[o.GetUID()] {
				continue
			}
			byName := o.GroupVersionKind() == secretKind && !owned(o, known) && namedFor(o.GetName(), clusters, softSuffixes)
			if byName || owned(o, moved) {
				moved[o.GetUID()], grown = true, true
			}
		}
	}
	var inv Inventory
	for _, o := range all {
		switch {
		case moved[o.GetUID()]:
			inv.Moved = append(inv.Moved, o)
		case o.GroupVersionKind() == secretKind && belongs(&o, clusters, extra):
			inv.Loose = append(inv.Loose, o)
		}
	}
	return inv
}

// isRoot tells whether an object is moved for its own sake.
func isRoot(o *unstructured.Unstructured) bool {
	switch KeyOf(o).Kind {
	case ClusterKind, schema.GroupKind{Group: clusterGroup, Kind: "ClusterClass"}, schema.GroupKind{Group: addonsGroup,
		Kind: "ClusterResourceSet"}:
		return true
	}
	_, labelled := o.GetLabels()[MoveLabel]
	return labelled
}

var (
	// softSuffixes are the names under which clusterctl knows a Secret without owner as a cluster's.
	softSuffixes = []string{"ca", "etcd", "sa", "proxy", "kubeconfig", "apiserver-etcd-client"}
	// looseSuffixes are the Secrets of the Talos providers, which it does not know.
	looseSuffixes = []string{"talos", "talosconfig"}
)

func namedFor(name string, clusters, suffixes []string) bool {
	for _, c := range clusters {
		if suffix, ok := strings.CutPrefix(name, c+"-"); ok && slices.Contains(suffixes, suffix) {
			return true
		}
	}
	return false
}

func belongs(secret *unstructured.Unstructured, clusters, extra []string) bool {
	return slices.Contains(clusters, secret.GetLabels()[clusterNameLabel]) ||
		slices.Contains(extra, secret.GetName()) || namedFor(secret.GetName(), clusters, looseSuffixes)
}

// All are all objects of the inventory.
func (i Inventory) All() []unstructured.Unstructured { return slices.Concat(i.Moved, i.Loose) }

// Of is what belongs to one cluster, and what belongs to no other: a Secret that all of them share, say.
func (i Inventory) Of(cluster string) []unstructured.Unstructured {
	all := i.All()
	owners := make(map[string]map[types.UID]bool)
	for _, name := range i.Clusters() {
		owners[name] = claimed(all, name)
	}
	return slices.DeleteFunc(all, func(o unstructured.Unstructured) bool {
		others := false
		for name, of := range owners {
			others = others || name != cluster && of[o.GetUID()]
		}
		return others && !owners[cluster][o.GetUID()]
	})
}

// claimed are the objects that a cluster claims: itself, what says so by label, field or name, and what these own.
func claimed(all []unstructured.Unstructured, cluster string) map[types.UID]bool {
	mine := map[types.UID]bool{}
	for i := range all {
		o := &all[i]
		field, _, _ := unstructured.NestedString(o.Object, "spec", "clusterName")
		if KeyOf(o).Kind == ClusterKind && o.GetName() == cluster || o.GetLabels()[clusterNameLabel] == cluster ||
			field == cluster ||
			o.GroupVersionKind() == secretKind && namedFor(o.GetName(), []string{cluster}, slices.Concat(softSuffixes,
				looseSuffixes)) {
			mine[o.GetUID()] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for i := range all {
			o := &all[i]
			if !mine[o.GetUID()] && slices.ContainsFunc(o.GetOwnerReferences(),
				func(r metav1.OwnerReference) bool { return mine[r.UID] }) {
				mine[o.GetUID()], grown = true, true
			}
		}
	}
	return mine
}

// Clusters are the names of the clusters.
func (i Inventory) Clusters() []string {
	var names []string
	for j := range i.Moved {
		if o := &i.Moved[j]; KeyOf(o).Kind == ClusterKind {
			names = append(names, o.GetName())
		}
	}
	return names
}

// Marked are the objects that a move has begun to delete.
func (i Inventory) Marked() []Key {
	var marked []Key
	for _, o := range i.All() {
		if IsMarked(&o) {
			marked = append(marked, KeyOf(&o))
		}
	}
	return marked
}

// IsMarked tells whether a move has begun to delete an object: then its annotations are not its own any more.
func IsMarked(o *unstructured.Unstructured) bool {
	_, marked := o.GetAnnotations()[DeleteForMove]
	return marked
}
