package capi

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// OwnersFirst orders objects of an inventory so that each follows its owners among them, and what belongs to a cluster
// by its name alone follows the Cluster. In the opposite order they are deleted.
func OwnersFirst(objects []unstructured.Unstructured) []unstructured.Unstructured {
	byUID := map[types.UID]*unstructured.Unstructured{}
	for i := range objects {
		byUID[objects[i].GetUID()] = &objects[i]
	}
	depths := map[types.UID]int{}
	var depth func(*unstructured.Unstructured) int
	depth = func(o *unstructured.Unstructured) int {
		if d, known := depths[o.GetUID()]; known {
			return d
		}
		d := rootDepth(o)
		depths[o.GetUID()] = d // owners in a circle end here
		for _, r := range o.GetOwnerReferences() {
			if owner := byUID[r.UID]; owner != nil {
				d = max(d, depth(owner)+1)
			}
		}
		depths[o.GetUID()] = d
		return d
	}
	ordered := slices.Clone(objects)
	slices.SortStableFunc(ordered, func(a, b unstructured.Unstructured) int { return cmp.Compare(depth(&a), depth(&b)) })
	return ordered
}

// rootDepth is the place of an object without an owner: a Cluster names its ClusterClass, and Secrets are named for
// their Cluster.
func rootDepth(o *unstructured.Unstructured) int {
	switch ObjectKeyOf(o).Kind {
	case clusterClass:
		return 0
	case ClusterKind.GroupKind():
		return 1
	}
	return 2
}
