package capi

import (
	"context"
	"fmt"

	"github.com/blang/semver/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Provider is one of the four that a cluster of Talos servers at Hetzner needs.
type Provider struct {
	Label    string // clusterctl's name for it: of its inventory object, of its folder in a local repository
	Kind     string // clusterctl's type
	Name     string // as clusterctl init takes it
	Version  string
	File     string // its manifest
	Variable string // that configures the version
}

// clusterctl's types of providers.
const (
	CoreProvider           = "CoreProvider"
	BootstrapProvider      = "BootstrapProvider"
	ControlPlaneProvider   = "ControlPlaneProvider"
	InfrastructureProvider = "InfrastructureProvider"
)

// Contracts between Cluster API's core and its providers. Each is called as the version in which a core of it stores
// its own objects.
const (
	ContractV1Beta1 = "v1beta1" // cores up to 1.10
	ContractV1Beta2 = "v1beta2" // cores from 1.11 on
)

// Compatible tells whether a core of one contract runs providers of another: cores of 1.11 to 1.15 run those of v1beta1
// through a compatibility layer.
func Compatible(core, provider string) bool {
	return provider == core || core == ContractV1Beta2 && provider == ContractV1Beta1
}

// ContractOfCore is the contract that a version of the core keeps; empty: it is no version.
func ContractOfCore(version string) string {
	v, err := semver.ParseTolerant(version)
	switch {
	case err != nil:
		return ""
	case v.Major == 1 && v.Minor <= 10:
		return ContractV1Beta1
	}
	return ContractV1Beta2
}

// InstalledContract is the contract of the core whose definitions are in a cluster; empty: there are none.
func InstalledContract(ctx context.Context, c client.Reader) (string, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	err := c.Get(ctx, client.ObjectKey{Name: clusterDefinition}, crd)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the definition %s: %w", clusterDefinition, err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if version, is := v.(map[string]any); is && version["storage"] == true {
			name, _ := version["name"].(string)
			return name, nil
		}
	}
	return "", fmt.Errorf("the definition %s has no version that is stored", clusterDefinition)
}

// ConfiguredProviders lists the providers of a configuration: core, bootstrap, control plane, infrastructure.
func ConfiguredProviders(cfg config.Config) []Provider {
	return []Provider{
		{"cluster-api", CoreProvider, "cluster-api", cfg.CAPIVersion, "core-components.yaml", "CAPI_VERSION"},
		{"bootstrap-talos", BootstrapProvider, "talos", cfg.CABPTVersion, "bootstrap-components.yaml", "CABPT_VERSION"},
		{ControlPlaneProviderName, ControlPlaneProvider, "talos", cfg.CACPPTVersion, "control-plane-components.yaml",
			"CACPPT_VERSION"},
		{"infrastructure-hetzner", InfrastructureProvider, "hetzner", cfg.CAPHVersion, "infrastructure-components.yaml",
			"CAPH_VERSION"},
	}
}

// ProviderVersions are the configured providers: clusterctl's name of each → its version.
func ProviderVersions(cfg config.Config) map[string]string {
	versions := map[string]string{}
	for _, p := range ConfiguredProviders(cfg) {
		versions[p.Label] = p.Version
	}
	return versions
}

// InstalledProviders lists what clusterctl has installed: provider → version.
func InstalledProviders(ctx context.Context, mgmt *kube.Cluster) (map[string]string, error) {
	l := ListOf(ProviderKind)
	if err := mgmt.List(ctx, l); err != nil {
		return nil, fmt.Errorf("list the installed providers: %w", err)
	}
	installed := map[string]string{}
	for i := range l.Items {
		installed[l.Items[i].GetName()] = Text(&l.Items[i], "version")
	}
	return installed, nil
}

// Namespaces of cert-manager.
const (
	// CertManagerNamespace is the one that clusterctl installs cert-manager in.
	CertManagerNamespace = "cert-manager"
	// CertManagerTestNamespace is the one in which clusterctl tries out cert-manager, and which it deletes.
	CertManagerTestNamespace = "cert-manager-test"
)
