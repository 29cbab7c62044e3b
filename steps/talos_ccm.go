package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/flow"
)

func (b *bootstrapper) talosCCM() installation {
	return installation{from(bootstrap.TalosCCM(), b.cfg.TalosCCMRepository), b.cfg.TalosCCMVersion, b.sources.talosCCM}
}

// installTalosCCM installs the approver of the kubelets' certificates. Its values leave the nodes to Hetzner's.
func (b *bootstrapper) installTalosCCM(ctx context.Context, say flow.Say) (Release, error) {
	return b.install(ctx, say, b.talosCCM())
}
