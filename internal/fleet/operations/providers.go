package operations

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
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// InstallProviders installs the providers in the management cluster, in a Job: the clusters' Jobs may not. It also
// lets those look at the providers.
func InstallProviders(ctx context.Context, q Request, name, namespace string, log io.Writer) error {
	k, err := session.Load(q.Caller, q.Request)
	if err != nil {
		return err
	}
	f, err := named(q, name, namespace)
	if err != nil {
		return err
	}
	if err := f.open(ctx, false); err != nil {
		return err
	}
	tools := k.CommonTools(statedir.New(q.StateDir, k.Cfg.ClusterName, q.Caller.WorkDir), log)
	// The Pod's own kubeconfig names the file of its token: it is trusted as that of this provider alone. The defaults
	// take the provider over, so it is named before.
	tools.Management = kind.NewProvider(k.Cfg.Config, tools.Files, false, io.Discard, nil)
	tools = tools.WithDefaults()
	if err := tools.Files.Write(platform.ManagementKubeconfig, f.kubeconfig); err != nil {
		return err
	}
	sources, err := render.Read(render.VariablesOf(k.Cfg.Config), tools.Overrides)
	if err != nil {
		return err
	}
	err = capiinit.Install(ctx, k.Cfg.Config, tools, sources, f.caller.Note, platform.ManagementKubeconfig)
	if err != nil {
		return fmt.Errorf("install the providers in the management cluster: %w", err)
	}
	return letLook(ctx, f.management, namespace)
}

// letLook lets the Jobs of a fleet's clusters look at the providers in their namespaces.
func letLook(ctx context.Context, management *kube.Cluster, namespace string) error {
	installed := capi.ListOf(capi.ProviderKind)
	if err := management.List(ctx, installed); err != nil {
		return fmt.Errorf("list the installed providers: %w", err)
	}
	objects := fleet.ProviderReading(namespace, capi.CertManagerNamespace)
	for i := range installed.Items {
		objects = append(objects, fleet.ProviderReading(namespace, installed.Items[i].GetNamespace())...)
	}
	return fleet.Ensure(ctx, management, objects...)
}
