package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// runFleetProviders installs the providers in the management cluster, in a Job: the clusters' Jobs may not. It also
// lets those look at the providers.
func runFleetProviders(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	f := &openedFleet{console: c, options: a.Options}
	f.Fleet = &fleet.Fleet{Spec: fleet.Spec{Name: argument(a), Namespace: o.Namespace}}
	if err := f.readOwn(a); err != nil {
		return err
	}
	say := sayLines(c)
	if err := f.open(ctx, false, say); err != nil {
		return err
	}
	tools := c.cluster(a, cfg).CommonTools(statedir.New(a.Options.StateDir, cfg.ClusterName, c.workDir), c.stderr)
	// The Pod's own kubeconfig names the file of its token: it is trusted as that of this provider alone. The defaults
	// take the provider over, so it is named before.
	tools.Management = kind.NewProvider(cfg.Config, tools.Files, false, io.Discard, nil)
	tools = tools.WithDefaults()
	if err := tools.Files.Write(platform.ManagementKubeconfig, f.kubeconfig); err != nil {
		return err
	}
	sources, err := render.Read(render.VariablesOf(cfg.Config), tools.Overrides)
	if err != nil {
		return err
	}
	err = capiinit.Install(ctx, cfg.Config, tools, sources, say, platform.ManagementKubeconfig)
	if err != nil {
		return fmt.Errorf("install the providers in the management cluster: %w", err)
	}
	if err := letLook(ctx, f.management, o.Namespace, !cfg.KeepsManager()); err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, "the providers are installed in the management cluster, and serve")
	return nil
}

// letLook lets the Jobs of a fleet's clusters look at the providers in their namespaces.
func letLook(ctx context.Context, management *kube.Cluster, namespace string, moves bool) error {
	installed := capi.ListOf(capi.ProviderKind)
	if err := management.List(ctx, installed); err != nil {
		return fmt.Errorf("list the installed providers: %w", err)
	}
	if err := fleet.EnsureObjects(ctx, management,
		fleet.ProviderReading(namespace, capi.CertManagerNamespace, false)...); err != nil {
		return err
	}
	for i := range installed.Items {
		provider := &installed.Items[i]
		infrastructure := capi.Text(provider, "type") == "InfrastructureProvider"
		err := fleet.EnsureObjects(ctx, management,
			fleet.ProviderReading(namespace, provider.GetNamespace(), moves && infrastructure)...)
		if err != nil {
			return err
		}
	}
	return nil
}
