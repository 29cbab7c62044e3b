package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/flow"
)

func (b *bootstrapper) cilium() installation {
	return installation{from(bootstrap.Cilium(), b.cfg.CiliumRepository), b.cfg.CiliumVersion, b.sources.cilium}
}

// installCilium installs the network. No node is Ready, and no Pod outside the host's network starts, before it.
func (b *bootstrapper) installCilium(ctx context.Context, say flow.Say) (Release, error) {
	return b.install(ctx, say, b.cilium())
}
