package charts

import (
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Own lists the charts that every cluster gets, in the order in which their steps are declared.
func Own(cfg config.Config, sources render.Sources) []Installation {
	return []Installation{Cilium(cfg, sources), HCloudCCM(cfg, sources), TalosCCM(cfg, sources)}
}

// All lists the charts that a cluster gets, its add-ons last.
func All(cfg config.Config, sources render.Sources) []Installation {
	all := Own(cfg, sources)
	for _, a := range cfg.InstallOrder() {
		all = append(all, Addon(a, sources))
	}
	return all
}
