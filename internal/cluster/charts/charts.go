// Package charts lists the Helm charts that a cluster gets: where each comes from, its version and its values.
package charts

import (
	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Cilium is the chart of that name, as it is configured.
func Cilium(cfg config.Config, sources render.Sources) Installation {
	return Installation{from(bootstrap.Cilium(), cfg.CiliumRepository), cfg.CiliumVersion, sources.Cilium}
}

// Keys of the Secret that bootstrap/hcloud-ccm-values.yaml refers to.
const (
	HCloudTokenKey   = "token"
	HCloudNetworkKey = "network"
)

// HCloudCCM is the chart of that name, as it is configured.
func HCloudCCM(cfg config.Config, sources render.Sources) Installation {
	return Installation{from(bootstrap.HCloudCCM(), cfg.HCloudCCMRepository), cfg.HCloudCCMVersion, sources.HcloudCCM}
}

// Installation is a chart with what is configured about it.
type Installation struct {
	bootstrap.Chart
	Version string
	Values  render.Source
}

// from puts a configured repository in the place of the chart's own.
func from(c bootstrap.Chart, repository string) bootstrap.Chart {
	if repository != "" {
		c.Repository = repository
	}
	return c
}

// TalosCCM is the chart of that name, as it is configured.
func TalosCCM(cfg config.Config, sources render.Sources) Installation {
	return Installation{from(bootstrap.TalosCCM(), cfg.TalosCCMRepository), cfg.TalosCCMVersion, sources.TalosCCM}
}
