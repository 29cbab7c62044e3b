package changes

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// ConsequencesInCluster says what applying rendered objects does to the cluster, in the cluster that manages it: the
// management cluster, or after the pivot the cluster itself. It changes nothing.
func ConsequencesInCluster(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	r *render.Rendered) ([]Consequence, error) {
	live, err := ReadLiveObjects(ctx, manager, cfg.Namespace, cfg.ClusterName, r.Now)
	if err != nil {
		return nil, err
	}
	all := ConsequencesOf(live, r.Now, tools.ServerTakes)
	price(ctx, tools, all)
	return all, addFlaw(ctx, cfg, tools, manager, all)
}

// addFlaw says of consequences that add, replace or remove control plane servers why that may never end.
func addFlaw(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	all []Consequence) error {
	for i := range all {
		c := &all[i]
		if c.Object.Kind != capi.TalosControlPlaneKind.Kind ||
			c.Effect != EffectAdds && c.Effect != EffectReplaces && c.Effect != EffectRemoves {
			continue
		}
		flaw, err := rollout.Flaw(ctx, cfg, tools, manager)
		if err != nil {
			return err
		}
		c.Flaw = flaw
		c.Text = c.String()
	}
	return nil
}

// ConsequencesOfPools says what applying the objects of the worker pools does to the cluster, in the cluster that
// manages it. It changes nothing.
func ConsequencesOfPools(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	objects []*unstructured.Unstructured) ([]Consequence, error) {
	live, err := ReadLiveObjects(ctx, manager, cfg.Namespace, cfg.ClusterName, objects)
	if err != nil {
		return nil, err
	}
	live.Pools = true
	tcp, err := capi.Get(ctx, manager, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	switch {
	case err == nil:
		live.Wanted = append(live.Wanted, *tcp) // the cluster exists
	case !kube.Absent(err):
		return nil, err
	}
	all := ConsequencesOf(live, objects, tools.ServerTakes)
	price(ctx, tools, all)
	return all, nil
}

// price fills in what consequences change in the cluster's monthly costs. A price list that cannot be had leaves them
// unknown.
func price(ctx context.Context, tools platform.Tools, all []Consequence) {
	for i := range all {
		c := &all[i]
		if len(c.before)+len(c.after) == 0 {
			continue
		}
		change := hetzner.Change(ctx, tools.Hetzner, c.before, c.after)
		c.Monthly = &change
		c.Text = c.String()
	}
}

// RenderForCluster renders the manifests with the values that a run would use: the image and the network zone that
// belong to the configured names, and the address in the live HetznerCluster. So templates and servers are called as
// the run will call them.
func RenderForCluster(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	manager *kube.Cluster) (*render.Rendered, error) {
	v, err := orders.AppliedVariables(ctx, cfg, tools, sources)
	if err != nil {
		return nil, err
	}
	live, err := capi.Get(ctx, manager, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName)
	switch {
	case err == nil:
		v = v.With(render.EndpointOf(live))
		placement, err := situation.LivePlacement(ctx, cfg, manager)
		if err != nil {
			return nil, err
		}
		v = v.Placed(render.Placement{Schedulable: placement.Schedulable, PoolGroups: placement.PoolGroups,
			MetadataRoute: placement.MetadataRoute, TalosVersion: placement.TalosVersion, Image: placement.Image,
			Template: placement.Template, TemplateHash: placement.TemplateHash})
	case !kube.Absent(err):
		return nil, err
	}
	return render.Manifests(cfg, sources, v)
}
