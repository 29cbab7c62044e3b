package apply

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

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// RemoveCopy deletes an object whose controllers are paused, whatever its finalizers: controllers that add theirs back
// before they see the pause cannot do so any more once it is being deleted.
func RemoveCopy(ctx context.Context, c *kube.Cluster, o *unstructured.Unstructured) error {
	if err := DropFinalizers(ctx, c, o); err != nil {
		return err
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
		return fmt.Errorf("delete %s: %w", capi.ObjectKeyOf(o), err)
	}
	return DropFinalizers(ctx, c, o)
}

// DropFinalizers takes an object's finalizers away, if it is still there.
func DropFinalizers(ctx context.Context, c *kube.Cluster, o *unstructured.Unstructured) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(c.Patch(ctx, o.DeepCopy(), patch)); err != nil {
		return fmt.Errorf("take the finalizers of %s away: %w", capi.ObjectKeyOf(o), err)
	}
	return nil
}

// RepairCopies compares objects on a paused target with what they are to be, and repairs what it can: it creates
// Secrets that are missing, and writes metadata that differs. It returns the differences that are left.
func RepairCopies(ctx context.Context, say flow.Say, target *kube.Cluster,
	wanted []*unstructured.Unstructured) (wrong []string, err error) {
	for _, was := range wanted {
		differences, err := repairObject(ctx, say, target, was)
		if err != nil {
			return nil, err
		}
		if len(differences) > 0 {
			wrong = append(wrong, capi.ObjectKeyOf(was).String()+": "+strings.Join(differences, ", "))
		}
	}
	return wrong, nil
}

// repairObject does that for one object.
func repairObject(ctx context.Context, say flow.Say, target *kube.Cluster, was *unstructured.Unstructured) ([]string,
	error) {
	is, err := ReadCopied(ctx, target, was)
	if err != nil {
		return nil, err
	}
	if is == nil && was.GetKind() == "Secret" {
		say("Secret %s stayed behind: creating it from the copy", was.GetName())
		return nil, CreateCopy(ctx, target, was)
	}
	if is == nil {
		return []string{"it is not there"}, nil
	}
	differences := capi.Differences(was, is)
	if len(differences) == 0 || !capi.MetadataOnly(differences) {
		return differences, nil
	}
	say("mending %s: %s", capi.ObjectKeyOf(was), strings.Join(differences, ", "))
	patch, err := json.Marshal(capi.Metadata(was))
	if err != nil {
		return nil, err
	}
	if err := target.Patch(ctx, is, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, fmt.Errorf("mend %s: %w", capi.ObjectKeyOf(was), err)
	}
	return capi.Differences(was, is), nil
}

// ReadCopied reads the namesake of an object; nil where there is none.
func ReadCopied(ctx context.Context, c *kube.Cluster, of *unstructured.Unstructured) (*unstructured.Unstructured,
	error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(of.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(of), o); err != nil {
		if kube.Absent(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get %s: %w", capi.ObjectKeyOf(of), err)
	}
	return o, nil
}

// CreateCopy creates an object of the copy on the target. Its owner references get the UIDs that the owners have there;
// those to owners that are not there are left out.
func CreateCopy(ctx context.Context, target *kube.Cluster, was *unstructured.Unstructured) error {
	o, err := copyFor(ctx, target, was)
	if err != nil {
		return err
	}
	if err := target.Create(ctx, o); err != nil {
		return fmt.Errorf("create %s: %w", capi.ObjectKeyOf(o), err)
	}
	return nil
}

// UpdateCopy makes an object of the target what CreateCopy would create.
func UpdateCopy(ctx context.Context, target *kube.Cluster, was, is *unstructured.Unstructured) error {
	o, err := copyFor(ctx, target, was)
	if err != nil {
		return err
	}
	o.SetUID(is.GetUID())
	o.SetResourceVersion(is.GetResourceVersion())
	if err := target.Update(ctx, o); err != nil {
		return fmt.Errorf("update %s: %w", capi.ObjectKeyOf(o), err)
	}
	return nil
}

// copyFor is an object as it is to be written to the target.
func copyFor(ctx context.Context, target *kube.Cluster, was *unstructured.Unstructured) (*unstructured.Unstructured,
	error) {
	o := was.DeepCopy()
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetGenerateName("") // with one, the API server calls an object that exists a timeout
	o.SetManagedFields(nil)
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	var owners []metav1.OwnerReference
	for _, owner := range was.GetOwnerReferences() {
		of := &unstructured.Unstructured{}
		of.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		of.SetNamespace(was.GetNamespace())
		of.SetName(owner.Name)
		is, err := ReadCopied(ctx, target, of)
		if err != nil {
			return nil, err
		}
		if is != nil {
			owner.UID = is.GetUID()
			owners = append(owners, owner)
		}
	}
	o.SetOwnerReferences(owners)
	return o, nil
}
