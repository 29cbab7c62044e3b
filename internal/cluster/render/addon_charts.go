package render

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
)

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
