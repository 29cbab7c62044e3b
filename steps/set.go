package steps

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
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
	s, err := readSet(cfg, tools)
	if err != nil {
		return nil, err
	}
	if err := render.CheckAddonFiles(s.cfg, s.sources); err != nil {
		return nil, err
	}
	s.observer.Began = time.Now()
	s.made, err = makeSpecs(s.cfg, s.tools, s.sources)
	return s, err
}

// readSet is NewSet for what renders, and adds no steps.
func readSet(cfg config.Config, tools platform.Tools) (*Set, error) {
	files, err := render.Read(render.VariablesOf(cfg), tools.Overrides)
	if err != nil {
		return nil, err
	}
	return newSet(cfg, tools, files), nil
}

func newSet(cfg config.Config, tools platform.Tools, files render.Sources) *Set {
	tools = tools.WithDefaults()
	return &Set{cfg: cfg, tools: tools, sources: files,
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: files}}
}

// specs are what the steps are made from, for the journal: a change in one of them runs its step again.
type specs struct {
	offer, endpoint, image, management, providers, cluster, cilium, hcloudCCM, talosCCM, nodes, workers,
	firewall any
	addons map[string]any // by the name of the add-on

	// of the providers, in the management cluster and in the workload cluster; the journal does not have them
	installing, installingInWorkload []flow.Wait
}

func makeSpecs(cfg config.Config, tools platform.Tools, sources render.Sources) (specs, error) {
	s := specs{
		offer:      offerSpec(cfg),
		endpoint:   map[string]string{"clusterName": cfg.ClusterName, "controlPlaneEndpoint": cfg.ControlPlaneEndpoint},
		management: connect.ManagementSpec(cfg, tools),
		firewall:   map[string]string{"clusterName": cfg.ClusterName, "firewallAllow": cfg.FirewallAllow},
		nodes: map[string]any{"controlPlaneReplicas": cfg.ControlPlaneReplicas,
			"kubernetesVersion": cfg.KubernetesVersion, "networkCidr": cfg.NetworkCIDR},
	}
	var err error
	if s.image, err = imageSpec(cfg, sources); err != nil {
		return specs{}, err
	}
	if s.providers, err = capiinit.Spec(cfg, tools, sources); err != nil {
		return specs{}, err
	}
	if s.installing, err = capiinit.Waits(cfg, sources); err != nil {
		return specs{}, err
	}
	if s.installingInWorkload, err = capiinit.Waits(withNodes(cfg), sources); err != nil {
		return specs{}, err
	}
	if s.cluster, err = clusterSpec(cfg, sources); err != nil {
		return specs{}, err
	}
	if s.workers, err = workersSpec(cfg, sources); err != nil {
		return specs{}, err
	}
	for _, r := range []struct {
		to *any
		in render.Chart
	}{{&s.cilium, render.CiliumChart(cfg, sources)}, {&s.hcloudCCM, render.HCloudCCMChart(cfg, sources)},
		{&s.talosCCM, render.TalosCCMChart(cfg, sources)}} {
		if *r.to, err = releaseSpec(sources, r.in); err != nil {
			return specs{}, err
		}
	}
	s.addons = map[string]any{}
	for _, a := range cfg.InstallOrder() {
		if s.addons[a.Name], err = addonSpec(a, sources); err != nil {
			return specs{}, err
		}
	}
	return s, nil
}
