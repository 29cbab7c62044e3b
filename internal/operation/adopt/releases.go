package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// readReleases takes the names of the releases and the versions of the charts from Helm's records, and the values that
// were given where they are others than the configured ones.
func (d *describing) readReleases(ctx context.Context) error {
	workload, err := d.workload(ctx)
	if err != nil {
		return err
	}
	for _, chart := range render.OwnCharts(d.cfg, d.sources) {
		helm, err := workload.Helm(chart.Namespace, "", func(string, ...any) {})
		if err != nil {
			return err
		}
		all, err := helm.OfChart(chart.Name)
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return usage.Errorf("%d Helm releases of the chart %s are deployed in namespace %s, and a cluster that is adopted "+
				"needs one of each of Slipway's charts: a run would install another one beside what does its work now. Install it "+
				"with helm, then adopt again", len(all), chart.Name, chart.Namespace)
		}
		is := all[0]
		if is.Name != chart.Release {
			err = settings.Variable(chart.Variable("RELEASE")).Set(&d.cfg, is.Name)
		}
		err = errors.Join(err, settings.Variable(chart.Variable("VERSION")).Set(&d.cfg, is.Version), d.readValues(chart, is))
		if err != nil {
			return err
		}
	}
	d.sources.Vars = render.VariablesOf(d.cfg)
	return nil
}

// readValues writes the values of a release down where they are not the configured ones.
func (d *describing) readValues(chart render.Chart, is *kube.DeployedRelease) error {
	wanted, err := chart.Values.Values(render.VariablesOf(d.cfg))
	if err != nil {
		return err
	}
	live, err := asJSON(is.Values)
	if err != nil {
		return err
	}
	base, err := asJSON(wanted)
	if err != nil {
		return err
	}
	over := overlay(base, live)
	switch {
	case len(over) == 0:
		return nil
	case !chart.Values.Replaceable():
		d.note("%s is left as it is: release %s has other values", chart.Values.Name, is.Name)
		return nil
	case !reflect.DeepEqual(render.MergeValues(base, over), live):
		d.note("release %s has values that no file beside the built-in values comes to: the next run upgrades the release",
			is.Name)
	}
	text, err := yaml.Marshal(escaped(over))
	if err != nil {
		return fmt.Errorf("write the values of release %s: %w", is.Name, err)
	}
	d.add(chart.Values.Path, "what release "+is.Name+" has besides or otherwise than the built-in values; they may "+
		"hold secrets", append([]byte("# Written by \"bootstrap adopt\": the release's values that differ from the built-in "+
		"ones, which they are\n# merged over. null takes a built-in value away.\n"), text...))
	return nil
}

// asJSON are values as JSON has them, as Helm's records are JSON.
func asJSON(values map[string]any) (map[string]any, error) {
	out := map[string]any{}
	data, err := json.Marshal(values)
	if err == nil && len(values) > 0 {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}

// overlay are the values that merged over others come to the live ones.
func overlay(base, live map[string]any) map[string]any {
	over := map[string]any{}
	for key, value := range live {
		below, found := base[key]
		belowMap, belowIsMap := below.(map[string]any)
		valueMap, valueIsMap := value.(map[string]any)
		switch {
		case belowIsMap && valueIsMap:
			if sub := overlay(belowMap, valueMap); len(sub) > 0 {
				over[key] = sub
			}
		case !found || !reflect.DeepEqual(below, value):
			over[key] = value
		}
	}
	for key := range base {
		if _, has := live[key]; !has {
			over[key] = nil
		}
	}
	return over
}

// escaped keeps what looks like a variable in values from being filled in.
func escaped(v any) any { return adapted(v, nil, nil) }
