package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/pivotcopy"
	"github.com/slipway-k8s/slipway/platform"
)

// compareWithCopy holds every object on the target against the copy, while the target is paused. What can be mended
// without doubt is: lost labels and annotations, a Secret that stayed behind. Everything else stops the pivot.
func compareWithCopy(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, s pivotClusters) error {
	copied, err := pivotcopy.In(tools).All()
	if err != nil {
		return err
	}
	if len(copied) == 0 {
		say("there is no copy to compare with")
	}
	wrong, err := differing(ctx, say, s.target, copied)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("cluster %s does not hold what was moved: %s%s; the cluster stays paused: "+
			"put right what differs, or, where it is well so, unpause the Cluster object (spec.paused), and run pivot again",
			cfg.ClusterName, strings.Join(wrong, "; "), whereTheCopyIs(tools))
	}
	return nil
}

// differing holds objects on a paused target against what they are to be, and says what is left after mending.
func differing(ctx context.Context, say flow.Say, target *kube.Cluster, wanted []*unstructured.Unstructured) (wrong []string, err error) {
	for _, was := range wanted {
		differences, err := mend(ctx, say, target, was)
		if err != nil {
			return nil, err
		}
		if len(differences) > 0 {
			wrong = append(wrong, clusterapi.KeyOf(was).String()+": "+strings.Join(differences, ", "))
		}
	}
	return wrong, nil
}

// mend compares one object, and mends what it can. What it returns is what is left.
func mend(ctx context.Context, say flow.Say, target *kube.Cluster, was *unstructured.Unstructured) ([]string, error) {
	is, err := read(ctx, target, was)
	if err != nil {
		return nil, err
	}
	if is == nil && was.GetKind() == "Secret" {
		say("Secret %s stayed behind: creating it from the copy", was.GetName())
		return nil, recreate(ctx, target, was)
	}
	if is == nil {
		return []string{"it is not there"}, nil
	}
	differences := clusterapi.Differences(was, is)
	if len(differences) == 0 || !clusterapi.MetadataOnly(differences) {
		return differences, nil
	}
	say("mending %s: %s", clusterapi.KeyOf(was), strings.Join(differences, ", "))
	patch, err := json.Marshal(clusterapi.Metadata(was))
	if err != nil {
		return nil, err
	}
	if err := target.Patch(ctx, is, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, fmt.Errorf("mend %s: %w", clusterapi.KeyOf(was), err)
	}
	return clusterapi.Differences(was, is), nil
}

// read reads the namesake of an object; nil where there is none.
func read(ctx context.Context, c *kube.Cluster, of *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(of.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(of), o); err != nil {
		if kube.Absent(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get %s: %w", clusterapi.KeyOf(of), err)
	}
	return o, nil
}

// recreate makes an object of the copy on the target, with owners as they are called there. Those that are not there do
// not own it.
func recreate(ctx context.Context, target *kube.Cluster, was *unstructured.Unstructured) error {
	o := was.DeepCopy()
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetManagedFields(nil)
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	var owners []metav1.OwnerReference
	for _, owner := range was.GetOwnerReferences() {
		of := &unstructured.Unstructured{}
		of.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		of.SetNamespace(was.GetNamespace())
		of.SetName(owner.Name)
		is, err := read(ctx, target, of)
		if err != nil {
			return err
		}
		if is != nil {
			owner.UID = is.GetUID()
			owners = append(owners, owner)
		}
	}
	o.SetOwnerReferences(owners)
	if err := target.Create(ctx, o); err != nil {
		return fmt.Errorf("create %s: %w", clusterapi.KeyOf(o), err)
	}
	return nil
}
