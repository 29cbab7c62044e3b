package situation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/render"
)

// LivePlacement is the placement that the control plane's next server gets; what does not exist is empty.
func LivePlacement(ctx context.Context, cfg config.Config, mgmt *kube.Cluster) (render.Placement, error) {
	get := func(kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
		o, err := capi.Get(ctx, mgmt, kind, name)
		if kube.Absent(err) {
			return nil, nil
		}
		return o, err
	}
	infrastructure, err := get(capi.HetznerClusterKind, cfg.ClusterName)
	if err != nil {
		return render.Placement{}, err
	}
	tcp, err := get(capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil || tcp == nil {
		return render.PlacementOf(infrastructure, tcp, nil), err
	}
	template, err := get(capi.MachineTemplateKind, capi.Text(tcp, "spec", "infrastructureTemplate", "name"))
	return render.PlacementOf(infrastructure, tcp, template), err
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
	chosen.Schedulable = live.Schedulable
	return chosen
}
