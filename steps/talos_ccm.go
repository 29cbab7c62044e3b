package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// runTalosCCM installs the approver of the kubelets' certificates. Its values leave the nodes to Hetzner's.
func (r releaseStep) runTalosCCM(ctx context.Context, say flow.Say) (Release, error) {
	return install(ctx, r.cfg, r.tools, r.sources, say, render.TalosCCMChart(r.cfg, r.sources), nil)
}
