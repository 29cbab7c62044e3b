package charts

import (
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/render"
)

// All lists the charts in the order in which their steps are declared.
func All(cfg config.Config, sources render.Sources) []Installation {
	return []Installation{Cilium(cfg, sources), HCloudCCM(cfg, sources), TalosCCM(cfg, sources)}
}
