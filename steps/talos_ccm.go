package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/render"
)

func talosCCM(cfg config.Config, sources render.Sources) installation {
	return installation{from(bootstrap.TalosCCM(), cfg.TalosCCMRepository), cfg.TalosCCMVersion, sources.TalosCCM}
}

// runTalosCCM installs the approver of the kubelets' certificates. Its values leave the nodes to Hetzner's.
func (r releaseStep) runTalosCCM(ctx context.Context, say flow.Say) (Release, error) {
	return install(ctx, r.cfg, r.tools, r.sources, say, talosCCM(r.cfg, r.sources))
}
