package steps

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// Set makes the steps of one cluster. Each of its methods adds one step to a graph, with everything that belongs to the
// step: its sentence, what it is made from, how it is verified, its deadline and its waits. A plan adds the order.
// Every plan that has a step takes it from here.
type Set struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
	made     specs
}

// NewSet reads the manifests and values of a valid configuration, and makes no request. Its error is about the
// operator's files.
func NewSet(cfg config.Config, tools platform.Tools) (*Set, error) {
	files, err := render.Read(render.VariablesOf(cfg), tools.Overrides)
	if err != nil {
		return nil, err
	}
	if err := render.CheckAddonFiles(cfg, files); err != nil {
		return nil, err
	}
	s := newSet(cfg, tools, files)
	s.observer.Began = time.Now()
	return s, s.makeSpecs()
}

func newSet(cfg config.Config, tools platform.Tools, files render.Sources) *Set {
	tools = tools.WithDefaults()
	return &Set{cfg: cfg, tools: tools, sources: files,
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: files}}
}

// specs are what the steps are made from, for the journal: a change in one of them runs its step again. They are made
// before the steps, because that finds mistakes in the operator's files.
type specs struct {
	image, providers, cluster, workers any
	releases                           map[string]any // by the name of the step

	// of the providers, in the management cluster and in the workload cluster; the journal does not have them
	installing, installingInWorkload []flow.Wait
}

func (s *Set) makeSpecs() (err error) {
	made := &s.made
	if made.image, err = imageSpec(s.cfg, s.sources); err != nil {
		return err
	}
	if made.providers, err = capiinit.Spec(s.cfg, s.tools, s.sources); err != nil {
		return err
	}
	if made.installing, err = capiinit.Waits(s.cfg, s.sources); err != nil {
		return err
	}
	if made.installingInWorkload, err = capiinit.Waits(withNodes(s.cfg), s.sources); err != nil {
		return err
	}
	if made.cluster, err = clusterSpec(s.cfg, s.sources); err != nil {
		return err
	}
	if made.workers, err = workersSpec(s.cfg, s.sources); err != nil {
		return err
	}
	made.releases = map[string]any{}
	for _, own := range []struct {
		step  string
		chart render.Chart
	}{{"cilium", render.CiliumChart(s.cfg, s.sources)}, {"hcloud-ccm", render.HCloudCCMChart(s.cfg, s.sources)},
		{"talos-ccm", render.TalosCCMChart(s.cfg, s.sources)}} {
		if made.releases[own.step], err = releaseSpec(s.sources, own.chart); err != nil {
			return err
		}
	}
	for _, a := range s.cfg.InstallOrder() {
		if made.releases[AddonStep(a.Name)], err = addonSpec(a, s.sources); err != nil {
			return err
		}
	}
	return nil
}
