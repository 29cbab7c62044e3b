package render

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
)

// Chart is a chart with what is configured about it.
type Chart struct {
	bootstrap.Chart
	Version string
	Values  Source
}

// Keys of the Secret that bootstrap/hcloud-ccm-values.yaml refers to.
const (
	HCloudTokenKey   = "token"
	HCloudNetworkKey = "network"
)

// CiliumChart is the chart of that name, as it is configured.
func CiliumChart(cfg config.Config, sources Sources) Chart {
	return chart(bootstrap.Cilium(), cfg.CiliumRepository, cfg.CiliumRelease, cfg.CiliumVersion, sources.Cilium)
}

// HCloudCCMChart is the chart of that name, as it is configured.
func HCloudCCMChart(cfg config.Config, sources Sources) Chart {
	return chart(bootstrap.HCloudCCM(), cfg.HCloudCCMRepository, cfg.HCloudCCMRelease, cfg.HCloudCCMVersion, sources.HcloudCCM)
}

// TalosCCMChart is the chart of that name, as it is configured.
func TalosCCMChart(cfg config.Config, sources Sources) Chart {
	return chart(bootstrap.TalosCCM(), cfg.TalosCCMRepository, cfg.TalosCCMRelease, cfg.TalosCCMVersion, sources.TalosCCM)
}

// chart puts a configured repository and name of the release in the place of the chart's own.
func chart(c bootstrap.Chart, repository, release, version string, values Source) Chart {
	c.Repository, c.Release = cmp.Or(repository, c.Repository), cmp.Or(release, c.Release)
	return Chart{c, version, values}
}

// Variable is the variable of the configuration that says something about a chart that every cluster gets: of Cilium
// CILIUM_RELEASE about its RELEASE.
func (c Chart) Variable(about string) string {
	return strings.ToUpper(strings.ReplaceAll(c.Program, "-", "_")) + "_" + about
}

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

// AddonChart is the chart of an add-on that has its defaults.
func AddonChart(a config.Addon, sources Sources) Chart {
	values, _ := sources.AddonValues(a.ValuesFile()) // CheckAddonFiles misses it
	return Chart{bootstrap.Chart{Name: a.Chart, Repository: a.Repository, Release: a.Name, Namespace: a.Namespace,
		Values: a.ValuesFile(), Program: a.Name}, a.Version, values}
}

// CheckAddonFiles refuses a values file that an add-on names and that is missing, and one in the folder of the add-ons'
// values files that no add-on uses.
func CheckAddonFiles(cfg config.Config, sources Sources) error {
	var problems []error
	var used []string
	for _, a := range config.ShippedAddons() {
		used = append(used, a.ValuesFile()) // one that is switched off may keep its file
	}
	for i, a := range cfg.Addons {
		used = append(used, a.ValuesFile())
		file, found := sources.AddonValues(a.ValuesFile())
		if a.Values != "" && !found {
			problems = append(problems, fmt.Errorf("addons[%d].values: there is no file %s%s: create it beside "+
				"bootstrap.yaml, or in the folder that --dir names", i, file.Path, didYouMean(a.Values, namesIn(sources))))
		}
	}
	for _, f := range sources.Addons {
		if name := path.Base(f.Path); !slices.Contains(used, name) {
			problems = append(problems, fmt.Errorf("%s is the values file of no add-on of the configuration%s: rename it, "+
				"move it out of this folder, or add the add-on", f.Name, didYouMean(name, used)))
		}
	}
	return errors.Join(problems...)
}

func namesIn(sources Sources) (names []string) {
	for _, f := range sources.Addons {
		names = append(names, path.Base(f.Path))
	}
	return names
}

func didYouMean(name string, names []string) string {
	near := flow.Nearest(name, slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return strings.EqualFold(n, name)
	}))
	if near == "" {
		return ""
	}
	return " (did you mean " + near + "?)"
}
