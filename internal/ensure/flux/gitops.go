package flux

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Folders below that of the cluster.
const (
	sources        = "flux-system" // HelmRepositories
	infrastructure = "infrastructure"
	apps           = "apps"
)

// Intervals and time-outs of the objects.
const (
	interval      = time.Hour        // HelmReleases and HelmRepositories: what they name does not change by itself
	syncInterval  = 10 * time.Minute // Kustomizations
	retryInterval = 2 * time.Minute  // Kustomizations that failed
	indexTimeout  = time.Minute      // HelmRepositories
	margin        = 5 * time.Minute  // a Kustomization waits longer than its HelmReleases
	retries       = 3                // of an installation or upgrade that failed
)

// Release is a Helm release of the cluster, as its HelmRelease is to be.
type Release struct {
	render.Chart // its version is the deployed one

	Values  map[string]any // without those that Git must not have
	Private []string       // the paths of values that Git must not have

	private map[string]any // these values

	folder  string
	after   []string // names of the releases that are installed first
	timeout time.Duration
	waits   bool // for its workloads
}

// Secret is the name of the Secret that has the values that Git must not have.
func (r Release) Secret() string { return r.Program + "-values" }

// LeftOut is a Helm release that is not in the tree.
type LeftOut struct {
	Release string `json:"release"` // namespace/name
	Why     string `json:"why"`
}

// configured lists the releases that a configuration has, as they are to be in the tree: Slipway's own as
// infrastructure, add-ons as apps, and Cilium before all others.
func configured(cfg config.Config) (all []Release) {
	cilium := render.CiliumChart(cfg, render.Sources{}).Program
	for _, in := range render.OwnCharts(cfg, render.Sources{}) {
		r := Release{Chart: in, folder: infrastructure, timeout: cfg.ReleaseTimeout.D(), waits: true}
		if in.Program != cilium {
			r.after = []string{cilium}
		}
		all = append(all, r)
	}
	for _, a := range cfg.InstallOrder() {
		all = append(all, Release{Chart: render.AddonChart(a, render.Sources{}), folder: apps,
			after: append([]string{cilium}, a.After...), timeout: cfg.Within(a).D(), waits: a.Waits()})
	}
	return all
}
