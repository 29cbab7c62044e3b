package steps

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Consequences tells what a run that would do this does to the cluster that exists, as the step apply will tell it.
// There are none where the run does not apply the manifests, and where there is no cluster yet. It changes nothing.
func (p *Plan) Consequences(ctx context.Context, foreseen []flow.Foresight) ([]Consequence, error) {
	applies := slices.ContainsFunc(foreseen, func(f flow.Foresight) bool {
		return f.Name == p.Cluster.Name() && (f.Prospect == flow.WouldRun || f.Prospect == flow.MayRun)
	})
	if !applies {
		return nil, nil
	}
	kubeconfig, err := p.b.tools.Files.Read(managementFile)
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
		r, err := p.b.renderAsApplied(ctx, manager)
		if err != nil {
			return nil, err
		}
		return p.b.consequencesIn(ctx, manager, r)
	})
}

// renderAsApplied renders the manifests with the values that a run would use: the image and the network zone that
// belong to the configured names, and the address in the live HetznerCluster. So templates and servers are called as
// the run will call them.
func (b *bootstrapper) renderAsApplied(ctx context.Context, manager *kube.Cluster) (*rendered, error) {
	v, err := b.appliedVariables(ctx)
	if err != nil {
		return nil, err
	}
	live, err := get(ctx, manager, hetznerClusterKind, b.cfg.ClusterName)
	switch {
	case err == nil:
		v[loadBalancerIPVariable] = text(live, "spec", "controlPlaneEndpoint", "host")
	case !kube.Absent(err):
		return nil, err
	}
	return b.render(v)
}

// appliedVariables are the manifests' with the image and the zone of a run. The load balancer's address is a made-up
// one.
func (b *bootstrapper) appliedVariables(ctx context.Context) (variables, error) {
	offer, err := hetzner.FindOffer(ctx, b.tools.Hetzner, b.cfg.Location, b.cfg.ServerType, b.cfg.LoadBalancerType)
	if err != nil {
		return nil, err
	}
	return b.manifestVariables(b.cfg.Image(offer.Architecture), offer.NetworkZone, "192.0.2.1"), nil
}
