package capiinit

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// newClusterctl creates clusterctl's client for a management cluster whose core has a contract, with the configuration
// of ClusterctlConfig in memory.
func newClusterctl(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	contract string) (platform.Clusterctl, error) {
	settings, err := ClusterctlConfig(cfg, tools, sources)
	if err != nil {
		return nil, err
	}
	reader := clusterctlconfig.NewMemoryReader()
	client, err := clusterctlconfig.New(ctx, "", clusterctlconfig.InjectReader(reader))
	if err != nil {
		return nil, err
	}
	for key, value := range settings { // after New, which sets the reader's own defaults
		reader.Set(key, value)
	}
	return tools.Clusterctl(ctx, client, contract)
}

const (
	// OverridesFolder is clusterctl's key for a folder whose manifests take precedence over a provider's own. Its default
	// is a folder in the user's home, with which a run on another machine would install something else.
	OverridesFolder = "overridesFolder"
	// NoOverrides is the folder in the state folder that Slipway configures instead. It is never created.
	NoOverrides = "no-overrides"
)

// ClusterctlConfig is clusterctl's configuration, key by key as its reader takes them: manifests/clusterctl.yaml, and
// over it what Slipway's own configuration says.
func ClusterctlConfig(cfg config.Config, tools platform.Tools, sources render.Sources) (map[string]string, error) {
	s := sources.Clusterctl
	entries, err := s.Values(sources.Vars)
	if err != nil {
		return nil, err
	}
	if cfg.ProviderRepository != "" {
		entries[clusterctlconfig.ProvidersConfigKey] = localProviders(cfg)
	}
	if entries[clusterctlconfig.CertManagerConfigKey], _, err = certManagerEntry(cfg, sources, entries); err != nil {
		return nil, err
	}
	if folder, _ := entries[OverridesFolder].(string); strings.TrimSpace(folder) == "" {
		entries[OverridesFolder] = tools.Files.Path(NoOverrides)
	}
	if t := tools.GitHubToken.Reveal(); t != "" {
		entries[clusterctlconfig.GitHubTokenVariable] = t
	}
	texts := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if value, ok := entries[key].(string); ok {
			texts[key] = value
			continue
		}
		data, err := yaml.Marshal(entries[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.Name, key, err)
		}
		texts[key] = string(data)
	}
	return texts, nil
}

// certManagerEntry is clusterctl's entry for cert-manager, and how long clusterctl waits for it: PROVIDERS_TIMEOUT,
// where manifests/clusterctl.yaml does not say.
func certManagerEntry(cfg config.Config, sources render.Sources, entries map[string]any) (entry map[string]any,
	timeout time.Duration, err error) {
	const key, within = clusterctlconfig.CertManagerConfigKey, "timeout"
	entry, ok := entries[key].(map[string]any)
	switch {
	case cfg.CertManagerURL != "":
		entry = map[string]any{"url": cfg.CertManagerURL, "version": cfg.CertManagerVersion}
	case entries[key] == nil:
		entry = map[string]any{}
	case !ok:
		return nil, 0, fmt.Errorf("%s: %s: it is no map of url, version and timeout", sources.Clusterctl.Name, key)
	}
	if entry[within] == nil {
		entry[within] = cfg.ProvidersTimeout.D().String()
	}
	text := fmt.Sprint(entry[within])
	if timeout, err = time.ParseDuration(text); err != nil || timeout <= 0 { // clusterctl would wait ten minutes then
		return nil, 0, fmt.Errorf("%s: %s: %q is not a time to wait: write a number and a unit (10m)",
			sources.Clusterctl.Name, key+"."+within, text)
	}
	return entry, timeout, nil
}

// localProviders points every provider's address into the local repository, as clusterctl lays one out.
func localProviders(cfg config.Config) []map[string]string {
	var local []map[string]string
	for _, p := range capi.ConfiguredProviders(cfg) {
		url := filepath.ToSlash(filepath.Join(cfg.ProviderRepository, p.Label, p.Version, p.File))
		local = append(local, map[string]string{"name": p.Name, "type": p.Kind, "url": url})
	}
	return local
}

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
