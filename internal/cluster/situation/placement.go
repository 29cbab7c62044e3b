package situation

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// LivePlacement is the placement that the control plane's next server gets; what does not exist is empty.
func LivePlacement(ctx context.Context, cfg config.Config, mgmt *kube.Cluster) (render.Placement, error) {
	get := func(kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
		o, err := capi.Get(ctx, mgmt, cfg.Namespace, kind, name)
		if kube.Absent(err) {
			return nil, nil
		}
		return o, err
	}
	infrastructure, err := get(capi.HetznerClusterKind, cfg.ClusterName)
	if err != nil {
		return render.Placement{}, err
	}
	groups, err := livePoolGroups(ctx, cfg.Namespace, mgmt, infrastructure)
	if err != nil {
		return render.Placement{}, err
	}
	placed := func(tcp, template *unstructured.Unstructured) render.Placement {
		p := render.PlacementOf(infrastructure, tcp, template)
		p.PoolGroups = groups
		return p
	}
	tcp, err := get(capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil || tcp == nil {
		return placed(tcp, nil), err
	}
	template, err := get(capi.MachineTemplateKind, capi.Text(tcp, "spec", "infrastructureTemplate", "name"))
	return placed(tcp, template), err
}

// livePoolGroups are the placement groups that a HetznerCluster, which may be nil, lists for worker pools.
func livePoolGroups(ctx context.Context, namespace string, mgmt *kube.Cluster,
	infrastructure *unstructured.Unstructured) (names []string, err error) {
	if infrastructure == nil {
		return nil, nil
	}
	templates := capi.ListOf(capi.MachineTemplateKind)
	if err := mgmt.List(ctx, templates, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list HCloudMachineTemplates: %w", err)
	}
	for _, name := range capi.PlacementGroups(infrastructure) {
		if slices.ContainsFunc(templates.Items, func(t unstructured.Unstructured) bool {
			return t.GetLabels()[capi.WorkerPoolLabel] != "" &&
				capi.Text(&t, "spec", "template", "spec", "placementGroupName") == name
		}) {
			names = append(names, name)
		}
	}
	return names, nil
}

// KeptPlacement is a chosen placement with what a live one has in its place, as far as the configuration allows that:
// the next server of a cluster is like its others, whatever has come into stock since.
func KeptPlacement(cfg config.Config, chosen, live render.Placement) render.Placement {
	if slices.Contains(cfg.ServerTypes(), live.ServerType) {
		chosen.ServerType = live.ServerType
	}
	if slices.Contains(cfg.Locations(), live.Location) {
		chosen.Location = live.Location
	}
	if len(live.Locations) > 0 && !slices.ContainsFunc(live.Locations,
		func(l string) bool { return !slices.Contains(cfg.Locations(), l) }) {
		chosen.Locations = live.Locations
	}
	chosen.Schedulable, chosen.PoolGroups, chosen.MetadataRoute = live.Schedulable, live.PoolGroups, live.MetadataRoute
	chosen.TalosVersion, chosen.Image = live.TalosVersion, live.Image
	chosen.Template, chosen.TemplateHash = live.Template, live.TemplateHash
	return chosen
}
