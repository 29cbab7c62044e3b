// Package capiinit installs Cluster API and its providers with clusterctl, and upgrades them.
package capiinit

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Install installs the providers, and what they need, in the cluster of a kubeconfig in the state folder, and returns
// when they serve.
func Install(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say,
	kubeconfig string) error {
	mgmt, err := connect.Cluster(tools, kubeconfig)
	if err != nil {
		return err
	}
	what, err := lacking(ctx, cfg, mgmt)
	if err != nil {
		return err
	}
	if what != nothing {
		err := exclusively(ctx, cfg, tools, say, mgmt, kubeconfig, func(ctx context.Context) error {
			// Again: another run may have installed them while this one waited for its turn.
			what, err := lacking(ctx, cfg, mgmt)
			if err != nil || what == nothing {
				return err
			}
			return install(ctx, cfg, tools, sources, say, mgmt, kubeconfig, what)
		})
		if err != nil {
			return err
		}
	}
	return awaitServing(ctx, cfg, say, mgmt)
}

// lack is what a cluster does not have of the providers and what they need.
type lack struct {
	missing string // providers, as a person reads them
	unready bool   // all of them are installed, and not all of it works
}

var nothing = lack{}

// lacking reads what is to be installed in a cluster.
func lacking(ctx context.Context, cfg config.Config, mgmt *kube.Cluster) (lack, error) {
	installed, err := capi.InstalledProviders(ctx, mgmt)
	if err != nil && !kube.Absent(err) {
		return nothing, err
	}
	missing, err := notInstalled(cfg, installed)
	if err != nil || len(missing) > 0 {
		return lack{missing: strings.Join(missing, ", ")}, err
	}
	unready, err := Unready(ctx, mgmt)
	return lack{unready: unready != ""}, err
}

// install installs what a cluster lacks.
func install(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say,
	mgmt *kube.Cluster, kubeconfig string, what lack) error {
	called := what.missing
	if called == "" {
		called = "what the providers need"
	} else {
		say("installing %s", called)
	}
	// What is installed already is skipped when it is tried again.
	err := wait.Retry(ctx, say, "the installation", func() error {
		if err := awaitTestGone(ctx, say, mgmt); err != nil {
			return err
		}
		if err := mendCertManager(ctx, cfg, tools, sources, say, mgmt, kubeconfig); err != nil || what.missing == "" {
			return err
		}
		if err := awaitTestGone(ctx, say, mgmt); err != nil { // the mending has one, too
			return err
		}
		return clusterctlInit(ctx, cfg, tools, sources, mgmt, kubeconfig)
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", called, err)
	}
	return nil
}

// testGoneWithin bounds a wait for the namespace of a test to be gone, which takes seconds. There are two, and they are
// part of the step's overhead.
const testGoneWithin = time.Minute

// awaitTestGone waits while what a test of cert-manager left, an ended run's or a recent one, is being deleted.
// clusterctl takes a namespace that is being deleted for one that exists, and then tries for ten minutes to write into
// it.
func awaitTestGone(ctx context.Context, say flow.Say, mgmt *kube.Cluster) error {
	w := wait.Wait{What: "a test of cert-manager to be gone", Within: testGoneWithin, Every: wait.LookGap}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		namespace := &corev1.Namespace{}
		err := mgmt.Get(ctx, client.ObjectKey{Name: capi.CertManagerTestNamespace}, namespace)
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("look for namespace %s: %w", capi.CertManagerTestNamespace, err)
		case namespace.DeletionTimestamp == nil:
			return "", nil
		}
		return "namespace " + capi.CertManagerTestNamespace + " is being deleted", nil
	})
}

// mendCertManager completes what a run that was cut off installed of cert-manager. clusterctl takes it for installed
// when it can make a certificate's object, which it also can while nothing but the definitions is there, and then never
// adds the rest: no provider would ever get its certificate. Another version, and one that Slipway did not install, is
// left alone.
func mendCertManager(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say,
	mgmt *kube.Cluster, kubeconfig string) error {
	err := mgmt.Get(ctx, client.ObjectKey{Name: capi.CertManagerNamespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return nil // clusterctl begins with the namespace
	}
	if err != nil {
		return fmt.Errorf("look for namespace %s: %w", capi.CertManagerNamespace, err)
	}
	c, err := newClusterctl(ctx, cfg, tools, sources, "") // cert-manager has nothing to do with the contract
	if err != nil {
		return err
	}
	m, err := c.CertManager(tools.Files.Path(kubeconfig))
	if err != nil {
		return err
	}
	plan, err := m.PlanUpgrade(ctx)
	if err != nil {
		return fmt.Errorf("compare cert-manager with its manifest: %w", err)
	}
	if plan.ExternallyManaged || !plan.ShouldUpgrade || plan.From != plan.To {
		return nil
	}
	say("installing cert-manager %s again: a part of it is missing, as where an installation was cut off", plan.To)
	return m.EnsureLatestVersion(ctx)
}

// clusterctlInit names all four providers even where some are installed: clusterctl leaves those alone, and would add
// its own choice for a kind that is not named. Where a core is installed, what is missing is added to that.
func clusterctlInit(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	mgmt *kube.Cluster, kubeconfig string) error {
	contract, err := capi.InstalledContract(ctx, mgmt)
	if err != nil {
		return err
	}
	c, err := newClusterctl(ctx, cfg, tools, sources, contract)
	if err != nil {
		return err
	}
	p := capi.ConfiguredProviders(cfg)
	spec := func(p capi.Provider) string { return p.Name + ":" + p.Version }
	_, err = c.Init(ctx, clusterctl.InitOptions{
		Kubeconfig:              clusterctl.Kubeconfig{Path: tools.Files.Path(kubeconfig)},
		CoreProvider:            spec(p[0]),
		BootstrapProviders:      []string{spec(p[1])},
		ControlPlaneProviders:   []string{spec(p[2])},
		InfrastructureProviders: []string{spec(p[3])},
	})
	return err
}

// watch reports changes of the providers' Deployments until the returned function is called.
func watch(ctx context.Context, mgmt *kube.Cluster) (<-chan struct{}, func()) {
	ctx, stop := context.WithCancel(ctx)
	return mgmt.Changes(ctx,
			kube.Selection{List: &appsv1.DeploymentList{}, Options: []client.ListOption{client.HasLabels{capi.ProviderLabel}}}),
		stop
}

// notInstalled lists the providers that are not installed. One that is installed at another version is an error:
// replacing it is an upgrade, which has rules of its own.
func notInstalled(cfg config.Config, installed map[string]string) (missing []string, err error) {
	for _, p := range capi.ConfiguredProviders(cfg) {
		switch has := installed[p.Label]; has {
		case "":
			missing = append(missing, p.Label+" "+p.Version)
		case p.Version:
		default:
			return nil, fmt.Errorf("%s is installed at %s, not %s: configure the installed version, or let the target upgrade "+
				"bring the other", p.Label, has, p.Version)
		}
	}
	return missing, nil
}

// Unready says what of the providers, and of cert-manager, does not serve yet, by reading only.
func Unready(ctx context.Context, mgmt *kube.Cluster) (string, error) {
	var missing []string
	for _, selector := range []client.ListOption{client.HasLabels{capi.ProviderLabel},
		client.MatchingLabels{capi.CoreLabel: capi.CertManagerCore}} {
		deployments := &appsv1.DeploymentList{}
		if err := mgmt.List(ctx, deployments, selector); err != nil {
			return "", fmt.Errorf("list the providers' Deployments: %w", err)
		}
		var workloads []kube.Workload
		for _, d := range deployments.Items {
			workloads = append(workloads, kube.Workload{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name})
		}
		unready, err := mgmt.Unready(ctx, workloads...)
		if err != nil {
			return "", err
		}
		if unready != "" {
			missing = append(missing, unready)
		}
	}
	untrusted, err := mgmt.UntrustedWebhooks(ctx, capi.ProviderLabel)
	if err != nil {
		return "", err
	}
	if untrusted != "" {
		missing = append(missing, untrusted)
	}
	return strings.Join(missing, "; "), nil
}

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
	contract, err := contractAfter(ctx, cfg, tools, sources, mgmt, options)
	if err != nil {
		return err
	}
	say("upgrading %s", strings.Join(what, ", "))
	c, err := newClusterctl(ctx, cfg, tools, sources, contract)
	if err != nil {
		return err
	}
	return c.ApplyUpgrade(ctx, options)
}

// contractAfter is the contract of the core after an upgrade.
func contractAfter(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	mgmt *kube.Cluster, options clusterctl.ApplyUpgradeOptions) (string, error) {
	if options.CoreProvider == "" {
		return capi.InstalledContract(ctx, mgmt)
	}
	c, err := newClusterctl(ctx, cfg, tools, sources, "")
	if err != nil {
		return "", err
	}
	contract, err := c.CoreContract(ctx, cfg.CAPIVersion)
	if err != nil {
		return "", fmt.Errorf("find out the contract of Cluster API %s: %w", cfg.CAPIVersion, err)
	}
	return contract, nil
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
