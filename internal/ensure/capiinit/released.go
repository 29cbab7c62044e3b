package capiinit

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Released is where a file of a provider's release is: a path below PROVIDER_REPOSITORY, else the address that
// manifests/clusterctl.yaml has for the provider. Empty: it has none.
func Released(cfg config.Config, sources render.Sources, p capi.Provider, file string) (string, error) {
	if cfg.ProviderRepository != "" {
		return filepath.Join(cfg.ProviderRepository, p.Label, p.Version, file), nil
	}
	entries, err := sources.Clusterctl.Values(sources.Vars)
	if err != nil {
		return "", err
	}
	listed, _ := entries[clusterctlconfig.ProvidersConfigKey].([]any)
	for _, entry := range listed {
		m, _ := entry.(map[string]any)
		if address, _ := m["url"].(string); m["name"] == p.Name && m["type"] == p.Kind && address != "" {
			return beside(address, file), nil
		}
	}
	return "", nil
}

// ReleasedCertManager is the version of cert-manager that clusterctl installs, and where its manifest is: an address,
// or a path.
func ReleasedCertManager(ctx context.Context, cfg config.Config, sources render.Sources) (version, manifest string,
	err error) {
	entries, err := sources.Clusterctl.Values(sources.Vars)
	if err != nil {
		return "", "", err
	}
	entry, _, err := certManagerEntry(cfg, sources, entries)
	if err != nil {
		return "", "", err
	}
	data, err := yaml.Marshal(entry)
	if err != nil {
		return "", "", err
	}
	reader := clusterctlconfig.NewMemoryReader()
	client, err := clusterctlconfig.New(ctx, "", clusterctlconfig.InjectReader(reader))
	if err != nil {
		return "", "", err
	}
	reader.Set(clusterctlconfig.CertManagerConfigKey, string(data))
	certManager, err := client.CertManager().Get()
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", sources.Clusterctl.Name, err)
	}
	address := certManager.URL()
	return certManager.Version(), beside(address, address[strings.LastIndex(address, "/")+1:]), nil
}

// beside is the address of another file of the same release. clusterctl's address of a release at GitHub is not that of
// its files, which lie below download.
func beside(address, file string) string {
	address = address[:strings.LastIndex(address, "/")+1] + file
	if u, err := url.Parse(address); err == nil && u.Host == "github.com" {
		return strings.Replace(address, "/releases/", "/releases/download/", 1)
	}
	return strings.TrimPrefix(address, "file://")
}
