package capi

import (
	"context"
	"fmt"

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
