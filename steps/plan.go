// Package steps is the bootstrap itself: the graph of its steps (Plan), a constructor of each step (Set), and one file
// for each of them.
package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// Plan is the graph of the bootstrap, with the handle of every step for a caller that needs its output.
type Plan struct {
	Graph *flow.Graph
	// Bootstrap and All name the steps that the targets bootstrap and all want; they depend on the others. Managed is
	// Bootstrap once the cluster manages itself.
	Bootstrap, All, Managed []string
	// Refused names the steps that a configuration with PIVOT=false does not run: pivot, and what needs it.
	Refused []string
	// AllRefused is why the configuration allows no target all; empty: it does.
	AllRefused string

	Preflight    *flow.Step[Placement]
	Reservation  *flow.Step[Reservation]
	Endpoint     *flow.Step[Endpoint]
	Image        *flow.Step[Image]
	Management   *flow.Step[Management]
	Providers    *flow.Step[Providers]
	Secret       *flow.Step[TokenSecret]
	Cluster      *flow.Step[Cluster]
	ControlPlane *flow.Step[ControlPlane]
	Kubeconfig   *flow.Step[Kubeconfig]
	Talosconfig  *flow.Step[Talosconfig]
	Cilium       *flow.Step[Release]
	HCloudCCM    *flow.Step[CloudController]
	TalosCCM     *flow.Step[Release]
	EachAddon    []*flow.Step[Addon]    // in the order in which they are installed
	GiteaToken   *flow.Step[GiteaToken] // nil without Gitea
	Addons       *flow.Step[Addons]
	Flux         *flow.Step[Flux] // nil without GITOPS, as FluxSync and FluxReleases
	// GiteaRepository is nil where Flux applies no repository in Gitea.
	GiteaRepository *flow.Step[GiteaRepository]
	FluxSync        *flow.Step[FluxSync]
	FluxReleases    *flow.Step[FluxReleases]
	Nodes           *flow.Step[Nodes]
	Workers         *flow.Step[Workers]
	WaitWorkers     *flow.Step[Nodes]
	Machines        *flow.Step[Machines]
	Stable          *flow.Step[Stability]
	// WorkloadProviders are installed in the cluster itself, Providers in the management cluster.
	WorkloadProviders *flow.Step[Providers]
	Pivot             *flow.Step[Pivot]
	Access            *flow.Step[Access]
	OwnSecret         *flow.Step[TokenSecret] // in the cluster itself, Secret in the management cluster
	Clean             *flow.Step[Clean]
	Firewall          *flow.Step[Firewall]
	FirewallApply     *flow.Step[FirewallAttachment]

	refusals
	b *Set
}

// New plans the bootstrap of a valid configuration. It reads the manifests and values, and makes no request.
func New(cfg config.Config, tools platform.Tools) (*Plan, error) {
	s, err := NewSet(cfg, tools)
	if err != nil {
		return nil, err
	}
	g := flow.New("slipway")
	p := &Plan{Graph: g, b: s}

	p.Preflight = s.Preflight(g).ExemptFromSeal()
	p.Reservation = s.Reserve(g).After(p.Preflight)
	p.Image = s.Image(g, p.Preflight).OrderAfter(p.Reservation).ExemptFromSeal()
	p.Management = s.Management(g).After(p.Preflight, p.Reservation)
	p.Providers = s.Providers(g, p.Management)
	p.Secret = s.TokenSecret(g, p.Management)
	p.Endpoint = s.Endpoint(g, p.Preflight).After(p.Reservation).OrderAfter(p.Management).ExemptFromSeal()
	p.Cluster = s.Apply(g, p.Management, p.Image, p.Preflight, p.Endpoint).After(p.Providers, p.Secret)
	p.ControlPlane = s.ControlPlane(g, p.Management, p.Cluster)
	p.Kubeconfig = s.Kubeconfig(g, p.Management, p.Cluster)
	p.Talosconfig = s.Talosconfig(g, p.Management, p.Cluster)
	p.Cilium = s.Cilium(g).After(p.Kubeconfig, p.ControlPlane).OrderAfter(p.Endpoint).ExemptFromSeal()
	p.HCloudCCM = s.HCloudCCM(g).After(p.Kubeconfig, p.ControlPlane).OrderAfter(p.Endpoint).ExemptFromSeal()
	p.TalosCCM = s.TalosCCM(g).After(p.Kubeconfig, p.ControlPlane).OrderAfter(p.Endpoint).ExemptFromSeal()
	p.Nodes = s.Nodes(g, p.Management, p.Cluster, p.Kubeconfig).RerunAfter(p.Cilium, p.HCloudCCM, p.TalosCCM)
	p.Workers = s.Workers(g, p.Preflight, p.Image).After(p.Kubeconfig, p.ControlPlane).OrderAfter(p.Endpoint).ExemptFromSeal()
	p.WaitWorkers = s.WaitWorkers(g, p.Workers).OrderAfter(p.Cilium, p.HCloudCCM, p.TalosCCM).ExemptFromSeal()
	p.Machines = s.Machines(g, p.Management, p.Cluster).After(p.Nodes).OrderAfter(p.WaitWorkers)
	p.addAddons(s)
	p.addGitOps(s)
	p.Stable = s.Stable(g, p.Cilium, p.HCloudCCM, p.TalosCCM, p.Addons).OrderAfter(p.Endpoint).ExemptFromSeal()
	p.WorkloadProviders = s.WorkloadProviders(g, p.Kubeconfig).After(p.ControlPlane)

	// From here on no step takes an output from before the pivot: where the journal is lost, it is not made again.
	p.Pivot = s.Pivot(g).After(p.Nodes, p.WaitWorkers, p.Machines, p.WorkloadProviders, p.Talosconfig).OrderAfter(p.Endpoint)
	p.Access = s.Access(g).After(p.Pivot).OrderAfter(p.Endpoint, p.WaitWorkers)
	p.OwnSecret = s.OwnTokenSecret(g).After(p.Pivot, p.HCloudCCM).OrderAfter(p.Endpoint, p.Access)
	for _, step := range p.EachAddon {
		if step.Name() == AddonStep(config.AddonAutoscaler) { // it works on what the pivot moves
			step.OrderAfter(p.Pivot, p.Access)
		}
	}
	p.Firewall = s.Firewall(g).OrderAfter(p.Reservation)
	p.FirewallApply = s.FirewallApply(g, p.Firewall).After(p.Kubeconfig).OrderAfter(p.Pivot)
	p.Clean = s.Clean(g).After(p.Pivot).OrderAfter(p.Access, p.FirewallApply)

	p.Bootstrap = []string{p.Talosconfig.Name(), p.Nodes.Name(), p.WaitWorkers.Name(), p.Stable.Name()}
	// After the pivot nothing brings the endpoint and the releases, which are exempt from its seal.
	releases := []string{p.Cilium.Name(), p.HCloudCCM.Name(), p.TalosCCM.Name(), p.Addons.Name(), p.Stable.Name()}
	for _, step := range p.EachAddon {
		releases = append(releases, step.Name())
	}
	if p.GiteaToken != nil {
		releases = append(releases, p.GiteaToken.Name())
		p.Bootstrap = append(p.Bootstrap, p.GiteaToken.Name())
	}
	if p.FluxSync != nil {
		releases = append(releases, p.Flux.Name(), p.FluxSync.Name(), p.FluxReleases.Name())
		if p.GiteaRepository != nil {
			releases = append(releases, p.GiteaRepository.Name())
		}
		p.Bootstrap = append(p.Bootstrap, p.FluxReleases.Name())
	}
	p.All = append([]string{p.Endpoint.Name(), p.WaitWorkers.Name(), p.Access.Name(), p.OwnSecret.Name(),
		p.FirewallApply.Name(), p.Clean.Name()}, releases...)
	if cfg.KeepsManager() {
		p.All = append([]string{p.Endpoint.Name(), p.FirewallApply.Name()}, append(releases, p.Bootstrap...)...)
		p.FirewallApply.OrderAfter(p.Nodes) // which the pivot, that it waits for else, comes after
		if cfg.FirewallAllow == "" {
			p.AllRefused = "PIVOT is false, and the firewall would cut the management cluster off from the servers: name the " +
				"ranges that it is seen from in FIREWALL_ALLOW (auto: this machine's own address)"
		}
		p.Refused = []string{p.Pivot.Name(), p.Access.Name(), p.OwnSecret.Name(), p.Clean.Name()}
	}
	p.Managed = append([]string{p.Endpoint.Name(), p.WaitWorkers.Name(), p.Access.Name(), p.OwnSecret.Name()}, releases...)
	return p, g.Validate()
}

// addAddons adds the steps of the add-ons. They need Pods' network and nodes that the cloud controller managers have
// initialized, and the first of them the Secret that the step hcloud-ccm writes.
func (p *Plan) addAddons(s *Set) {
	p.EachAddon, p.GiteaToken = s.EachAddon(p.Graph, p.Cilium, p.HCloudCCM, p.TalosCCM)
	if p.GiteaToken != nil {
		p.GiteaToken.OrderAfter(p.Endpoint).ExemptFromSeal()
	}
	for _, step := range p.EachAddon {
		step.OrderAfter(p.Endpoint, p.Nodes, p.WaitWorkers).ExemptFromSeal()
	}
	p.Addons = s.Addons(p.Graph, p.EachAddon).After(p.Cilium).OrderAfter(p.Endpoint).ExemptFromSeal()
}

// addGitOps adds the steps of Flux, where it is configured. They need what the add-ons need.
func (p *Plan) addGitOps(s *Set) {
	if s.cfg.GitOps != config.GitOpsFlux {
		return
	}
	p.Flux = s.Flux(p.Graph).After(p.Cilium, p.HCloudCCM, p.TalosCCM).OrderAfter(p.Endpoint, p.Nodes, p.WaitWorkers).
		ExemptFromSeal()
	if p.GiteaToken != nil { // Flux's controllers, and what they apply, may read it
		p.Flux.After(p.GiteaToken)
	}
	if s.cfg.GitInGitea() { // what it begins with is made from all releases, and has Secrets in Flux's namespace
		p.GiteaRepository = s.GiteaRepository(p.Graph).After(p.GiteaToken, p.Flux, p.Cilium, p.HCloudCCM, p.TalosCCM, p.Addons).
			OrderAfter(p.Endpoint).ExemptFromSeal()
	}
	p.FluxSync = s.FluxSync(p.Graph, p.Flux, p.GiteaRepository).ExemptFromSeal()
	p.FluxReleases = s.FluxReleases(p.Graph).After(p.FluxSync).ExemptFromSeal()
}

// ReadOnlySteps names the steps that change nothing but files of the state folder.
func ReadOnlySteps() []string {
	return []string{"preflight", "wait-cp", "kubeconfig", "talosconfig", "wait-nodes", "wait-workers", "wait-machines",
		"addons", "wait-releases", "access"}
}

// WaitForServers names the steps that wait while the control plane's servers are replaced.
func WaitForServers() []string { return []string{"talosconfig", "wait-nodes"} }

// PivotPassed tells whether the steps before the pivot are passed over, because the cluster manages itself or is about
// to. It asks the journal and the state folder.
func (p *Plan) PivotPassed(ctx context.Context, j flow.Journal) (bool, error) {
	all, err := p.Graph.Recorded(ctx, j)
	for _, s := range all {
		if s.Name == p.Cluster.Name() {
			return s.Sealed == p.Pivot.Name(), err
		}
	}
	return false, err
}
