package steps

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Consequences tells what a run that would do this does to the cluster that exists, as the step apply will tell it.
// There are none where the run does not apply the manifests, and where there is no cluster yet. It changes nothing.
func (p *Plan) Consequences(ctx context.Context, foreseen []flow.Prediction) ([]Consequence, error) {
	applies := slices.ContainsFunc(foreseen, func(f flow.Prediction) bool {
		return f.Name == p.Cluster.Name() && (f.Action == flow.ActionRun || f.Action == flow.ActionMayRun)
	})
	if !applies {
		return nil, nil
	}
	kubeconfig, err := p.b.tools.Files.Read(platform.ManagementKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there is no management cluster yet
	}
	if err != nil {
		return nil, err
	}
	manager, err := p.b.tools.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	const silent = "the management cluster or Hetzner has not answered"
	return promptly(ctx, silent, func(ctx context.Context) ([]Consequence, error) {
		r, err := renderAsApplied(ctx, p.b.cfg, p.b.tools, p.b.sources, manager)
		if err != nil {
			return nil, err
		}
		return consequencesIn(ctx, p.b.cfg, p.b.tools, manager, r)
	})
}

// renderAsApplied renders the manifests with the values that a run would use: the image and the network zone that
// belong to the configured names, and the address in the live HetznerCluster. So templates and servers are called as
// the run will call them.
func renderAsApplied(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, manager *kube.Cluster) (*render.Rendered, error) {
	v, err := appliedVariables(ctx, cfg, tools, sources)
	if err != nil {
		return nil, err
	}
	live, err := capi.Get(ctx, manager, capi.HetznerClusterKind, cfg.ClusterName)
	switch {
	case err == nil:
		v[render.LoadBalancerIPVariable] = capi.Text(live, "spec", "controlPlaneEndpoint", "host")
	case !kube.Absent(err):
		return nil, err
	}
	return render.Manifests(cfg, sources, v)
}

// appliedVariables are the manifests' with the image and the zone of a run. The load balancer's address is a made-up
// one.
func appliedVariables(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources) (render.Variables, error) {
	offer, err := hetzner.FindOffer(ctx, tools.Hetzner, cfg.Location, cfg.ServerType, cfg.LoadBalancerType)
	if err != nil {
		return nil, err
	}
	return render.ManifestVariables(sources, cfg.Image(offer.Architecture), offer.NetworkZone, "192.0.2.1"), nil
}
