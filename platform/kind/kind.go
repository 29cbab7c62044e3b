// Package kind provides the management cluster outside the lab, for programs that use Slipway as a library.
package kind

import (
	"io"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/platform"
)

// New is the provider of the management cluster that a configuration asks for: the existing cluster of
// ManagementKubeconfig, or else a kind cluster that is created on this machine, which needs Docker. It makes no
// request. It uses Files, Consent, Log and Effects of the tools, so those are set before; the result is for their
// field Management. It does not make the cluster of config.ManagementLocal: that is the command's alone.
func New(cfg config.Config, tools platform.Tools) platform.ManagementProvider {
	log := tools.Log
	if log == nil {
		log = io.Discard
	}
	return kind.NewProvider(cfg, tools.Files, tools.Consent, log, tools.Effects)
}
