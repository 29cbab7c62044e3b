package capiinit

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// NewClusterctl creates clusterctl's client, with the configuration of ClusterctlConfig in memory.
func NewClusterctl(ctx context.Context, cfg config.Config, tools platform.Tools,
	sources render.Sources) (platform.Clusterctl, error) {
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
	return tools.Clusterctl(ctx, client)
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
