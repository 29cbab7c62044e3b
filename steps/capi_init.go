package steps

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/client/kube"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// Providers are the installed Cluster API providers: clusterctl's name of each → its version.
type Providers struct {
	Versions map[string]string `json:"versions"`
}

// Providers adds the step capi-init to a graph: Cluster API and its providers are installed in the management cluster.
func (s *Set) Providers(g *flow.Graph, management *flow.Step[Management]) *flow.Step[Providers] {
	step := newProvidersStep(s, platform.ManagementKubeconfig)
	return flow.Add(g, flow.Task[Providers]{
		Name:     "capi-init",
		Doc:      "Cluster API and its providers for Hetzner and Talos are installed and serve",
		Run:      flow.With1(step.run, management),
		Spec:     s.made.providers,
		Verify:   step.verify,
		Deadline: 3*s.cfg.ProvidersTimeout.D() + wait.Overhead,
		Waits:    append(slices.Clone(s.made.installing), capiinit.LeaseWait(s.cfg)),
	})
}

// providersStep runs and verifies the steps capi-init and providers.
type providersStep struct {
	cfg        config.Config
	tools      platform.Tools
	sources    render.Sources
	kubeconfig string // of the cluster with the providers, in the state folder
}

func newProvidersStep(s *Set, kubeconfig string) providersStep {
	return providersStep{cfg: s.cfg, tools: s.tools, sources: s.sources, kubeconfig: kubeconfig}
}

// run installs the providers and waits until they serve. clusterctl skips what its inventory has, and then
// neither repairs nor waits for it: waiting is done here, in every case.
func (step providersStep) run(ctx context.Context, say flow.Say, m Management) (Providers, error) {
	return Providers{Versions: capi.ProviderVersions(step.cfg)},
		capiinit.Install(ctx, step.cfg, step.tools, step.sources, say, m.Kubeconfig)
}

func (step providersStep) verify(ctx context.Context, was Providers) flow.Verdict {
	mgmt, err := connect.Cluster(step.tools, step.kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	installed, err := capi.InstalledProviders(ctx, mgmt)
	if err != nil {
		return kube.Verdict(err)
	}
	for label, version := range was.Versions {
		if installed[label] != version {
			return flow.Gone("provider %s %s is not installed any more", label, version)
		}
	}
	missing, err := capiinit.Unready(ctx, mgmt)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case missing != "":
		return flow.Gone("%s", missing)
	}
	return flow.Holds()
}
