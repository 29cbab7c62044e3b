package capiinit

import (
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Spec is what an installation of the providers is made from.
func Spec(cfg config.Config, tools platform.Tools, sources render.Sources) (any, error) {
	configured, err := sources.Clusterctl.Digest(nil)
	if err != nil {
		return nil, err
	}
	if _, err := ClusterctlConfig(cfg, tools, sources); err != nil {
		return nil, err
	}
	return map[string]any{"versions": capi.ProviderVersions(cfg), "clusterctl": configured}, nil
}

// Waits are the waits of an installation of the providers. clusterctl bounds its own, for cert-manager, as its
// configuration has it.
func Waits(cfg config.Config, sources render.Sources) ([]flow.Wait, error) {
	entries, err := sources.Clusterctl.Values(sources.Vars)
	if err != nil {
		return nil, err
	}
	_, certManager, err := certManagerEntry(cfg, sources, entries)
	if err != nil {
		return nil, err
	}
	return []flow.Wait{
		wait.Download,
		{For: "cert-manager (PROVIDERS_TIMEOUT, or cert-manager.timeout of " + sources.Clusterctl.Name + ")",
			Within: certManager},
		{For: "the providers to serve (PROVIDERS_TIMEOUT)", Within: cfg.ProvidersTimeout.D()},
	}, nil
}
