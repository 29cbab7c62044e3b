package steps

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/client/kube"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
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
	return flow.Add(g, flow.Task[Providers]{
		Name:     "capi-init",
		Doc:      "Cluster API and its providers for Hetzner and Talos are installed and serve",
		Run:      flow.With1(s.runProviders, management),
		Spec:     s.made.providers,
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyProviders),
		Deadline: 3*s.cfg.ProvidersTimeout.D() + wait.Overhead,
		Waits:    append(slices.Clone(s.made.installing), capiinit.LeaseWait(s.cfg)),
	})
}

// runProviders installs the providers and waits until they serve. clusterctl skips what its inventory has, and then
// neither repairs nor waits for it: waiting is done here, in every case.
func (s *Set) runProviders(ctx context.Context, say flow.Say, m Management) (Providers, error) {
	return Providers{Versions: capi.ProviderVersions(s.cfg)},
		capiinit.Install(ctx, s.cfg, s.tools, s.sources, say, m.Kubeconfig)
}

func (s *Set) verifyProviders(ctx context.Context, in *kube.Cluster, was Providers) flow.Verdict {
	installed, err := capi.InstalledProviders(ctx, in)
	if err != nil {
		return kube.Verdict(err)
	}
	for label, version := range was.Versions {
		if installed[label] != version {
			return flow.Gone("provider %s %s is not installed any more", label, version)
		}
	}
	return complete(capiinit.Unready(ctx, in))
}
