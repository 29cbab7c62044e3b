package charts

import (
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/render"
)

func All(cfg config.Config, sources render.Sources) []Installation {
	return []Installation{Cilium(cfg, sources), HCloudCCM(cfg, sources), TalosCCM(cfg, sources)}
}
