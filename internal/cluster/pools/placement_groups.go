package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// EnsurePlacementGroups lists placement groups of worker pools in the HetznerCluster, so that CAPH creates them, and
// takes those out that the templates name, are not wanted and hold no server.
func EnsurePlacementGroups(ctx context.Context, say flow.Say, mgmt *kube.Cluster, namespace, cluster string,
	wanted []string, templates []unstructured.Unstructured) error {
	live, err := capi.Get(ctx, mgmt, namespace, capi.HetznerClusterKind, cluster)
	if err != nil {
		return err
	}
	servers, err := capi.List(ctx, mgmt, namespace, capi.HCloudMachineKind, cluster)
	if err != nil {
		return err
	}
	used := slices.Clone(wanted)
	for i := range servers {
		used = append(used, capi.Text(&servers[i], "spec", "placementGroupName"))
	}
	var unused []string
	for i := range templates {
		group := capi.Text(&templates[i], "spec", "template", "spec", "placementGroupName")
		if group != "" && !slices.Contains(used, group) {
			unused = append(unused, group)
		}
	}
	listed, _, err := unstructured.NestedSlice(live.Object, "spec", "hcloudPlacementGroups")
	if err != nil {
		return err
	}
	is := render.WithPlacementGroups(listed, wanted, unused)
	if equality.Semantic.DeepEqual(is, listed) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": live.GetResourceVersion()},
		"spec": map[string]any{"hcloudPlacementGroups": is}})
	if err != nil {
		return err
	}
	say("HetznerCluster %s: %d placement groups", live.GetName(), len(is))
	if err := mgmt.Patch(ctx, live, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("list the worker pools' placement groups in HetznerCluster %s: %w", live.GetName(), err)
	}
	return nil
}
