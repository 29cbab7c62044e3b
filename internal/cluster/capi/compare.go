package capi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Differences says where two versions of an object disagree, one from the source and one from the target of a move:
// fields, and never a value, since some are secret. What each API server gives out itself, the status, which the data
// of a conversion contain, and whether a Cluster is paused do not count.
func Differences(was, is *unstructured.Unstructured) []string {
	found := differMaps("metadata.labels", was.GetLabels(), is.GetLabels())
	found = append(found, differMaps("metadata.annotations", ownAnnotations(was), ownAnnotations(is))...)
	for _, f := range was.GetFinalizers() {
		if !slices.Contains(is.GetFinalizers(), f) {
			found = append(found, "metadata.finalizers: no "+f)
		}
	}
	if a, b := owners(was), owners(is); !slices.Equal(a, b) {
		found = append(found, fmt.Sprintf("metadata.ownerReferences: [%s] instead of [%s]", strings.Join(b, " "),
			strings.Join(a, " ")))
	}
	if is.GetDeletionTimestamp() != nil {
		found = append(found, "metadata.deletionTimestamp: it is being deleted")
	}
	return append(found, differFields("", content(was), content(is))...)
}

// MetadataOnly tells whether differences are only such as Metadata can mend.
func MetadataOnly(differences []string) bool {
	return !slices.ContainsFunc(differences, func(d string) bool {
		return !strings.HasPrefix(d, "metadata.labels") && !strings.HasPrefix(d, "metadata.annotations")
	})
}

// Metadata is the merge patch that gives an object the labels and annotations of was.
func Metadata(was *unstructured.Unstructured) map[string]any {
	return map[string]any{"metadata": map[string]any{
		"labels": was.GetLabels(), "annotations": ownAnnotations(was),
	}}
}

// ownAnnotations are those of an object that neither a move nor a conversion has put there.
func ownAnnotations(o *unstructured.Unstructured) map[string]string {
	annotations := o.GetAnnotations() // a copy
	delete(annotations, DeleteForMove)
	delete(annotations, ConversionDataAnnotation)
	return annotations
}

func differMaps(field string, was, is map[string]string) (found []string) {
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, is)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, hadIt := was[k]
		if b, hasIt := is[k]; a != b || hadIt != hasIt {
			found = append(found, field+"["+k+"]")
		}
	}
	return found
}

// owners are an object's owners without their UIDs, which are new in the target.
func owners(o *unstructured.Unstructured) []string {
	var names []string
	for _, r := range o.GetOwnerReferences() {
		group, _, _ := strings.Cut(r.APIVersion, "/")
		name := r.Kind + "." + group + "/" + r.Name
		if metav1.IsControlledBy(o, &metav1.ObjectMeta{UID: r.UID}) {
			name += "*"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// content is everything of an object that was written by its author.
func content(o *unstructured.Unstructured) map[string]any {
	c := o.DeepCopy().Object
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(c, field)
	}
	if isCluster(o) {
		unstructured.RemoveNestedField(c, "spec", "paused")
	}
	return c
}

// differFields descends one level, so that a difference is named "spec.replicas" and not "spec".
func differFields(path string, was, is map[string]any) (found []string) {
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, hadIt := was[k]
		b, hasIt := is[k]
		am, aok := a.(map[string]any)
		bm, bok := b.(map[string]any)
		switch {
		case aok && bok && path == "":
			found = append(found, differFields(k+".", am, bm)...)
		case hadIt != hasIt || !reflect.DeepEqual(a, b):
			found = append(found, path+k)
		}
	}
	return found
}
