package changes

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// ownerLabel names, on every object that apply applies, the cluster whose manifests it is part of.
	OwnerLabel = "slipway.dev/cluster"
	// appliedAsAnnotation names the object itself. A copy that is made with kubectl has the label too, and says that
	// it is another object: it is not Slipway's.
	AppliedAsAnnotation = "slipway.dev/applied-as"
)

// MarkOwned puts the marks of ownership on an object of the manifests. They are metadata of the object alone: no
// provider compares them, or hands them down to servers.
func MarkOwned(o *unstructured.Unstructured, cluster string) {
	labels, annotations := maps.Clone(o.GetLabels()), maps.Clone(o.GetAnnotations())
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[OwnerLabel], annotations[AppliedAsAnnotation] = cluster, appliedAs(o)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

func appliedAs(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

// owned reports whether Slipway applied a live object as part of the cluster's manifests. Releases before the marks
// left only the field manager; that counts where byManager is set, and never for what a controller has made.
func owned(o *unstructured.Unstructured, cluster string, byManager bool) bool {
	if label, marked := o.GetLabels()[OwnerLabel]; marked {
		return label == cluster && o.GetAnnotations()[AppliedAsAnnotation] == appliedAs(o)
	}
	return byManager && metav1.GetControllerOf(o) == nil &&
		slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
			return m.Manager == kube.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply
		})
}
