package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// SetPaused sets spec.paused of the Cluster, or removes it: then no field manager owns the field. Slipway pauses
// nowhere else.
func SetPaused(ctx context.Context, cfg config.Config, c *kube.Cluster, pause bool) error {
	o, err := Get(ctx, c, cfg.Namespace, ClusterKind, cfg.ClusterName)
	if err != nil {
		return err
	}
	value := "null"
	if pause {
		value = "true"
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":`+value+`}}`))
	if err := c.Patch(ctx, o, patch); err != nil {
		return fmt.Errorf("set spec.paused of %s: %w", kube.Describe(o), err)
	}
	return nil
}

// DeleteMachine deletes exactly this Machine, not another of its name.
func DeleteMachine(ctx context.Context, mgmt *kube.Cluster, machine *unstructured.Unstructured) error {
	uid := machine.GetUID()
	if err := mgmt.Delete(ctx, machine, client.Preconditions{UID: &uid}); err != nil && !kube.Absent(err) {
		return fmt.Errorf("delete %s: %w", kube.Describe(machine), err)
	}
	return nil
}

// Unobserved says that the controller of an object has not observed its last change; empty: it has.
func Unobserved(o *unstructured.Unstructured) string {
	if Number(o, "status", "observedGeneration") != o.GetGeneration() {
		return "not looked at yet"
	}
	return ""
}

// Annotate sets annotations of an object, or removes those whose value is nil.
func Annotate(ctx context.Context, c *kube.Cluster, o client.Object, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	o = o.DeepCopyObject().(client.Object)
	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("change the annotations %s of %s: %w",
			strings.Join(slices.Sorted(maps.Keys(annotations)), ", "), kube.Describe(o), err)
	}
	return nil
}
