package talosconfig

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// Refresh writes the talosconfig again after the control plane's servers have changed, with their new list.
func Refresh(ctx context.Context, cfg config.Config, tools platform.Tools, observer *situation.Observer, say flow.Say,
	manager *kube.Cluster) (File, error) {
	endpoint, err := situation.LiveEndpoint(ctx, cfg, tools, manager)
	if err != nil {
		return File{}, err
	}
	watched := situation.WatchedOf(cfg)
	watched.LoadBalancerIP = endpoint.IP
	return Renew(ctx, cfg, tools, observer, say, manager, watched)
}
