package capi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
)

// clusterDefinition is the name of the definition of the kind Cluster.
const clusterDefinition = "clusters." + clusterGroup

var (
	crdKind      = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	secretKind   = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	clusterClass = schema.GroupKind{Group: clusterGroup, Kind: "ClusterClass"}
	coreKinds    = []schema.GroupVersionKind{secretKind, {Version: "v1", Kind: "ConfigMap"}}
)

// ObjectKey names an object within a namespace, the same in the source and the target of a move.
type ObjectKey struct {
	Kind schema.GroupKind
	Name string
}

// ObjectKeyOf is an object's key.
func ObjectKeyOf(o *unstructured.Unstructured) ObjectKey {
	return ObjectKey{o.GroupVersionKind().GroupKind(), o.GetName()}
}

// String is "Machine k8s-control-plane-6f4dm".
func (k ObjectKey) String() string { return k.Kind.Kind + " " + k.Name }

// Inventory is what belongs to the clusters of a namespace, by kind and name.
type Inventory struct {
	// Moved are the objects that a pivot moves, which clusterctl would, too: the clusters, what they own, and what
	// carries MoveLabel.
	Moved []unstructured.Unstructured
	// Loose are Secrets that belong to a cluster by label or name only. A pivot gives them MoveLabel.
	Loose []unstructured.Unstructured
}

// Reader reads the objects of a cluster, and knows which kinds its API serves.
type Reader interface {
	client.Reader
	RESTMapper() meta.RESTMapper
}

// listsAtOnce bounds the requests of ReadInventory that are under way together.
const listsAtOnce = 8

// ReadInventory takes the inventory of a namespace, to which the Secret with the Hetzner token belongs as well. Where
// Cluster API is not installed there is nothing, and that is no error.
func ReadInventory(ctx context.Context, c Reader, namespace string) (Inventory, error) {
	kinds, err := MovedKinds(ctx, c)
	if err != nil || len(kinds) == 0 {
		return Inventory{}, err
	}
	kinds = append(kinds, coreKinds...)
	lists := make([]*unstructured.UnstructuredList, len(kinds))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(listsAtOnce)
	for i, kind := range kinds {
		lists[i] = ListOf(kind)
		asking.Go(func() error {
			// An API server that has just started may not serve a kind yet: that says nothing about its objects.
			if err := c.List(ctx, lists[i], client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("list %ss in namespace %s: %w", kind.Kind, namespace, err)
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return Inventory{}, err
	}
	var all []unstructured.Unstructured
	for i, kind := range kinds {
		for _, o := range lists[i].Items {
			o.SetGroupVersionKind(kind)
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return sortOut(all), nil
}

// Clusters lists the Cluster objects of a cluster, of all namespaces or of those that the options select. None where
// Cluster API is not installed; an error where it is, but is not served (yet).
func Clusters(ctx context.Context, c Reader, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	definitions, err := definitions(ctx, c)
	if err != nil || !slices.Contains(definitions, clusterDefinition) {
		return nil, err
	}
	mapping, err := served(ctx, c, clusterDefinition)
	if err != nil {
		return nil, err
	}
	l := ListOf(mapping.GroupVersionKind)
	if err := c.List(ctx, l, opts...); err != nil {
		return nil, fmt.Errorf("list the Cluster objects: %w", err)
	}
	return l.Items, nil
}

// MovedKinds are the namespaced kinds of the objects that can be moved, at the versions in which Slipway reads them.
// None where Cluster API is not installed; an error where one of them is not served (yet).
func MovedKinds(ctx context.Context, c Reader) ([]schema.GroupVersionKind, error) {
	definitions, err := definitions(ctx, c)
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, name := range definitions {
		mapping, err := served(ctx, c, name)
		if err != nil {
			return nil, err
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			kinds = append(kinds, mapping.GroupVersionKind)
		}
	}
	return kinds, nil
}

// definitions names the definitions of the kinds whose objects can be moved. Only their metadata is read: together they
// are some megabytes.
func definitions(ctx context.Context, c client.Reader) ([]string, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(crdKind.GroupVersion().WithKind(crdKind.Kind + "List"))
	if err := c.List(ctx, l, client.HasLabels{crdLabel}); err != nil {
		return nil, fmt.Errorf("list the kinds of Cluster API: %w", err)
	}
	var names []string
	for _, crd := range l.Items {
		names = append(names, crd.GetName())
	}
	return names, nil
}

// An API server that has just started, or joined others, serves a defined kind some seconds after it serves the
// definition: so long is one waited for.
const (
	servedWithin = 10 * time.Second
	servedEvery  = 250 * time.Millisecond
)

// served finds out how the API serves the kind of a definition. The API requires the name of a definition to be made of
// its plural and its group.
func served(ctx context.Context, c Reader, definition string) (*meta.RESTMapping, error) {
	plural, group, _ := strings.Cut(definition, ".")
	resource := schema.GroupVersionResource{Group: group, Resource: plural}
	var kind schema.GroupVersionKind
	var err error
	// The mapper reads the API's discovery again where it knows no match. Discovery cannot be watched.
	_ = wait.PollUntilContextTimeout(ctx, servedEvery, servedWithin, true, func(context.Context) (bool, error) {
		kind, err = readAs(c.RESTMapper(), resource)
		return !meta.IsNoMatchError(err), nil
	})
	if err != nil {
		return nil, fmt.Errorf("find out the version of %s: %w", definition, err)
	}
	mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find out the scope of %s: %w", definition, err)
	}
	return mapping, nil
}

// readAs is the kind of a resource at the version in which Slipway reads it: the one that the API prefers, and v1beta1
// where that is v1beta2. Fields have other places in v1beta2 (status.infrastructureReady has none), and cores from 1.11
// to 1.15 serve v1beta1, too.
func readAs(mapper meta.RESTMapper, resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	preferred, err := mapper.KindFor(resource)
	if err != nil || preferred.Version != ContractV1Beta2 {
		return preferred, err
	}
	resource.Version = ContractV1Beta1
	if kind, err := mapper.KindFor(resource); !meta.IsNoMatchError(err) {
		return kind, err
	}
	return preferred, nil
}

// sortOut follows the owners, as clusterctl does.
func sortOut(all []unstructured.Unstructured) Inventory {
	known := map[types.UID]bool{}
	var clusters []string
	for i := range all {
		known[all[i].GetUID()] = true
		if isCluster(&all[i]) {
			clusters = append(clusters, all[i].GetName())
		}
	}
	moved := withOwned(all, func(o *unstructured.Unstructured) bool {
		return isRoot(o) || o.GroupVersionKind() == secretKind && !owned(o, known) && namedFor(o.GetName(), clusters, softSuffixes)
	})
	var inv Inventory
	for _, o := range all {
		switch {
		case moved[o.GetUID()]:
			inv.Moved = append(inv.Moved, o)
		case o.GroupVersionKind() == secretKind && belongs(&o, clusters):
			inv.Loose = append(inv.Loose, o)
		}
	}
	return inv
}

// withOwned are the objects that are chosen for their own sake, and those that these own.
func withOwned(all []unstructured.Unstructured, chosen func(*unstructured.Unstructured) bool) map[types.UID]bool {
	found := map[types.UID]bool{}
	for grown := true; grown; {
		grown = false
		for i := range all {
			if o := &all[i]; !found[o.GetUID()] && (chosen(o) || owned(o, found)) {
				found[o.GetUID()], grown = true, true
			}
		}
	}
	return found
}

// owned tells whether an object has one of some owners.
func owned(o *unstructured.Unstructured, by map[types.UID]bool) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return by[r.UID] })
}

func isCluster(o *unstructured.Unstructured) bool {
	return ObjectKeyOf(o).Kind == ClusterKind.GroupKind()
}

// isRoot tells whether an object is moved for its own sake.
func isRoot(o *unstructured.Unstructured) bool {
	switch ObjectKeyOf(o).Kind {
	case ClusterKind.GroupKind(), clusterClass, schema.GroupKind{Group: addonsGroup, Kind: "ClusterResourceSet"}:
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

// NamedFor tells whether a Secret is one of a cluster by its name.
func NamedFor(secret, cluster string) bool {
	return namedFor(secret, []string{cluster}, slices.Concat(softSuffixes, looseSuffixes))
}

func namedFor(name string, clusters, suffixes []string) bool {
	for _, c := range clusters {
		if suffix, ok := strings.CutPrefix(name, c+"-"); ok && slices.Contains(suffixes, suffix) {
			return true
		}
	}
	return false
}

func belongs(secret *unstructured.Unstructured, clusters []string) bool {
	return slices.Contains(clusters, secret.GetLabels()[ClusterNameLabel]) || secret.GetName() == config.TokenSecretName ||
		namedFor(secret.GetName(), clusters, looseSuffixes)
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
	return withOwned(all, func(o *unstructured.Unstructured) bool {
		return isCluster(o) && o.GetName() == cluster || o.GetLabels()[ClusterNameLabel] == cluster ||
			Text(o, "spec", "clusterName") == cluster ||
			o.GroupVersionKind() == secretKind && NamedFor(o.GetName(), cluster)
	})
}

// Clusters are the names of the clusters.
func (i Inventory) Clusters() []string {
	var names []string
	for j := range i.Moved {
		if o := &i.Moved[j]; isCluster(o) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// Marked are the objects that a move has begun to delete.
func (i Inventory) Marked() []ObjectKey {
	var marked []ObjectKey
	for _, o := range i.All() {
		if IsMarked(&o) {
			marked = append(marked, ObjectKeyOf(&o))
		}
	}
	return marked
}

// IsMarked tells whether a move has begun to delete an object: then its annotations are not its own any more.
func IsMarked(o *unstructured.Unstructured) bool {
	_, marked := o.GetAnnotations()[DeleteForMove]
	return marked
}
