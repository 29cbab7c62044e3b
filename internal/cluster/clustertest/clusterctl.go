package clustertest

import (
	"context"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

// Clusterctl installs inventory objects and Deployments, as far as anyone looks at them.
type Clusterctl struct {
	w        *Environment
	config   clusterctlconfig.Client
	contract string
}

// Init records its options and installs the providers.
func (f *Clusterctl) Init(_ context.Context, o clusterctl.InitOptions) ([]clusterctl.Components, error) {
	f.w.Mu.Lock()
	defer f.w.Mu.Unlock()
	f.w.Inits, f.w.Contracts = append(f.w.Inits, o), append(f.w.Contracts, f.contract)
	f.w.ProviderURLs = nil
	listed, err := f.config.Providers().List()
	if err != nil {
		return nil, err
	}
	for _, p := range listed {
		f.w.ProviderURLs = append(f.w.ProviderURLs, p.URL())
	}
	c := config.Defaults()
	for version, specs := range map[*string][]string{&c.CAPIVersion: {o.CoreProvider},
		&c.CABPTVersion: o.BootstrapProviders, &c.CACPPTVersion: o.ControlPlaneProviders,
		&c.CAPHVersion: o.InfrastructureProviders} {
		for _, spec := range specs {
			if _, named, is := strings.Cut(spec, ":"); is {
				*version = named
			}
		}
	}
	if filepath.Base(o.Kubeconfig.Path) == platform.Kubeconfig {
		InstallProviders(f.w.Workload, c)
	} else {
		f.w.Install(c)
	}
	return nil, nil
}

// ApplyUpgrade records its options and gives the named providers their versions.
func (f *Clusterctl) ApplyUpgrade(_ context.Context, o clusterctl.ApplyUpgradeOptions) error {
	f.w.Mu.Lock()
	defer f.w.Mu.Unlock()
	f.w.Upgrades, f.w.Contracts = append(f.w.Upgrades, o), append(f.w.Contracts, f.contract)
	in := f.w.Management
	if filepath.Base(o.Kubeconfig.Path) == platform.Kubeconfig {
		in = f.w.Workload
	}
	for label, specs := range map[string][]string{"cluster-api": {o.CoreProvider}, "bootstrap-talos": o.BootstrapProviders,
		"control-plane-talos": o.ControlPlaneProviders, "infrastructure-hetzner": o.InfrastructureProviders} {
		for _, spec := range specs {
			if _, version, named := strings.Cut(spec, ":"); named {
				provider := in.Get("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", label, label)
				provider.Object["version"] = version
				in.Put(provider)
			}
		}
	}
	return nil
}

// CoreContract is what Cluster API's metadata say of its series.
func (f *Clusterctl) CoreContract(_ context.Context, version string) (string, error) {
	return capi.ContractOfCore(version), nil
}

// CertManager is the fake installer of cert-manager.
func (f *Clusterctl) CertManager(string) (cluster.CertManagerClient, error) {
	return &fakeCertManager{w: f.w}, nil
}

// fakeCertManager counts the Deployments of cert-manager, of which there are to be three.
type fakeCertManager struct {
	cluster.CertManagerClient
	w *Environment
}

// CertManagerVersion is the version that clusterctl wants.
const CertManagerVersion = "v1.16.1"

// CertManagerDeployments are the names of cert-manager's Deployments.
var CertManagerDeployments = []string{"cert-manager", "cert-manager-cainjector", "cert-manager-webhook"}

func (f *fakeCertManager) PlanUpgrade(context.Context) (cluster.CertManagerUpgradePlan, error) {
	plan := cluster.CertManagerUpgradePlan{ExternallyManaged: true, To: CertManagerVersion}
	here := 0
	for _, name := range CertManagerDeployments {
		if o := f.w.Management.Get("apps/v1", "Deployment", capi.CertManagerNamespace, name); o != nil {
			here++
			plan.ExternallyManaged, plan.From = false, o.GetAnnotations()["version"]
		}
	}
	plan.ShouldUpgrade = !plan.ExternallyManaged && (here < len(CertManagerDeployments) || plan.From != plan.To)
	return plan, nil
}

// EnsureLatestVersion installs all of it, and tries it out in a namespace that is still on its way out when it returns.
func (f *fakeCertManager) EnsureLatestVersion(context.Context) error {
	for _, name := range CertManagerDeployments {
		f.w.Management.Put(CertManagerDeployment(name, CertManagerVersion))
	}
	f.w.Management.Put(CertManagerTestBeingDeleted())
	return nil
}

// CertManagerTestBeingDeleted is the namespace of clusterctl's test of cert-manager while it is being deleted.
func CertManagerTestBeingDeleted() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: Map{"apiVersion": "v1", "kind": "Namespace", "metadata": Map{
		"name": capi.CertManagerTestNamespace, "deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"test"},
	}}}
}

// CertManagerDeployment is one of them, available, at a version.
func CertManagerDeployment(name, version string) *unstructured.Unstructured {
	return kubetest.Object("apps/v1", "Deployment", capi.CertManagerNamespace, name, Map{
		"metadata": Map{"labels": Map{capi.CoreLabel: capi.CertManagerCore}, "annotations": Map{"version": version}},
		"spec":     Map{"replicas": 1}, "status": Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
	})
}

// Install puts the providers of a configuration into the management cluster.
func (w *Environment) Install(c config.Config) { InstallProviders(w.Management, c) }

// InstallProviders puts the providers of a configuration into a cluster.
func InstallProviders(in *kubetest.Server, c config.Config) {
	for _, p := range capi.ConfiguredProviders(c) {
		labels := Map{capi.ProviderLabel: p.Label}
		in.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", p.Label, p.Label,
			Map{"metadata": Map{"labels": labels}, "version": p.Version}))
		in.Put(kubetest.Object("apps/v1", "Deployment", p.Label, "manager", Map{
			"metadata": Map{"labels": labels}, "spec": Map{"replicas": 1},
			"status": Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
		}))
	}
}
