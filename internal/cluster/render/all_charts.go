package render

import (
	"github.com/slipway-k8s/slipway/config"
)

// OwnCharts lists the charts that every cluster gets, in the order in which their steps are declared.
func OwnCharts(cfg config.Config, sources Sources) []Chart {
	return []Chart{CiliumChart(cfg, sources), HCloudCCMChart(cfg, sources), TalosCCMChart(cfg, sources)}
}

// AllCharts lists the charts that a cluster gets, its add-ons last.
func AllCharts(cfg config.Config, sources Sources) []Chart {
	all := OwnCharts(cfg, sources)
	for _, a := range cfg.InstallOrder() {
		all = append(all, AddonChart(a, sources))
	}
	return all
}
