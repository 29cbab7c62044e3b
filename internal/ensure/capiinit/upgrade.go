package capiinit

import (
	"context"
	"fmt"
	"strings"

	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Upgrade brings the providers that are installed in the cluster of a kubeconfig in the state folder to the configured
// versions, and returns when they serve. clusterctl deletes a provider's objects but for its kinds and its namespace,
// creates those of the new version, and writes the version down last: an upgrade that was cut off is repeated.
func Upgrade(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say,
	kubeconfig string) error {
	mgmt, err := connect.Cluster(tools, kubeconfig)
	if err != nil {
		return err
	}
	upgrade := func(ctx context.Context) error {
		return wait.Retry(ctx, say, "the upgrade of the providers", func() error {
			return applyUpgrade(ctx, cfg, tools, sources, say, mgmt, kubeconfig)
		})
	}
	if err := exclusively(ctx, cfg, tools, say, mgmt, kubeconfig, upgrade); err != nil {
		return fmt.Errorf("upgrade the providers: %w", err)
	}
	return awaitServing(ctx, cfg, say, mgmt)
}

// applyUpgrade upgrades the providers whose version is another than the configured one.
func applyUpgrade(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say,
	mgmt *kube.Cluster, kubeconfig string) error {
	installed, err := capi.InstalledProviders(ctx, mgmt)
	if err != nil {
		return err
	}
	options, what := upgradeOf(cfg, installed)
	if len(what) == 0 {
		return nil
	}
	options.Kubeconfig = clusterctl.Kubeconfig{Path: tools.Files.Path(kubeconfig)}
	say("upgrading %s", strings.Join(what, ", "))
	c, err := NewClusterctl(ctx, cfg, tools, sources)
	if err != nil {
		return err
	}
	return c.ApplyUpgrade(ctx, options)
}

// upgradeOf names the installed providers whose version is another than the configured one.
func upgradeOf(cfg config.Config, installed map[string]string) (o clusterctl.ApplyUpgradeOptions, what []string) {
	for _, p := range capi.ConfiguredProviders(cfg) {
		has := installed[p.Label]
		if has == "" || has == p.Version {
			continue
		}
		what = append(what, fmt.Sprintf("%s %s → %s", p.Label, has, p.Version))
		spec := p.Name + ":" + p.Version
		switch p.Kind {
		case capi.CoreProvider:
			o.CoreProvider = spec
		case capi.BootstrapProvider:
			o.BootstrapProviders = []string{spec}
		case capi.ControlPlaneProvider:
			o.ControlPlaneProviders = []string{spec}
		case capi.InfrastructureProvider:
			o.InfrastructureProviders = []string{spec}
		}
	}
	return o, what
}

// awaitServing waits until the providers' Deployments are available and their webhooks answer.
func awaitServing(ctx context.Context, cfg config.Config, say flow.Say, mgmt *kube.Cluster) error {
	changes, stop := watch(ctx, mgmt)
	defer stop()
	return wait.Wait{What: "the providers to serve", Within: cfg.ProvidersTimeout.D(), Changes: changes}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			if unready, err := Unready(ctx, mgmt); unready != "" || err != nil {
				return unready, err
			}
			// Only now, because an answer proves nothing while an old Pod may still give it.
			return mgmt.ProbeWebhooks(ctx, cfg.Namespace, capi.ProviderLabel)
		})
}
