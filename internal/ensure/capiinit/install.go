// Package capiinit installs Cluster API and its providers with clusterctl, and upgrades them.
package capiinit

import (
	"context"
	"fmt"
	"strings"
	"time"

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
		return clusterctlInit(ctx, cfg, tools, sources, kubeconfig)
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
	c, err := NewClusterctl(ctx, cfg, tools, sources)
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
// its own choice for a kind that is not named.
func clusterctlInit(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	kubeconfig string) error {
	c, err := NewClusterctl(ctx, cfg, tools, sources)
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
