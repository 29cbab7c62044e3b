package render

import (
	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
)

// CiliumChart is the chart of that name, as it is configured.
func CiliumChart(cfg config.Config, sources Sources) Chart {
	return Chart{from(bootstrap.Cilium(), cfg.CiliumRepository), cfg.CiliumVersion, sources.Cilium}
}

// Keys of the Secret that bootstrap/hcloud-ccm-values.yaml refers to.
const (
	HCloudTokenKey   = "token"
	HCloudNetworkKey = "network"
)

// HCloudCCMChart is the chart of that name, as it is configured.
func HCloudCCMChart(cfg config.Config, sources Sources) Chart {
	return Chart{from(bootstrap.HCloudCCM(), cfg.HCloudCCMRepository), cfg.HCloudCCMVersion, sources.HcloudCCM}
}

// Chart is a chart with what is configured about it.
type Chart struct {
	bootstrap.Chart
	Version string
	Values  Source
}

// from puts a configured repository in the place of the chart's own.
func from(c bootstrap.Chart, repository string) bootstrap.Chart {
	if repository != "" {
		c.Repository = repository
	}
	return c
}

// TalosCCMChart is the chart of that name, as it is configured.
func TalosCCMChart(cfg config.Config, sources Sources) Chart {
	return Chart{from(bootstrap.TalosCCM(), cfg.TalosCCMRepository), cfg.TalosCCMVersion, sources.TalosCCM}
}
