package steps

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Providers are the installed Cluster API providers: clusterctl's name of each → its version.
type Providers struct {
	Versions map[string]string `json:"versions"`
}

// provider is one of the four that a cluster of Talos servers at Hetzner needs.
type provider struct {
	label    string // clusterctl's name for it: of its inventory object, of its folder in a local repository
	kind     string // clusterctl's type
	name     string // as clusterctl init takes it
	version  string
	file     string // its manifest
	variable string // that configures the version
}

func providersOf(cfg config.Config) []provider {
	return []provider{
		{"cluster-api", "CoreProvider", "cluster-api", cfg.CAPIVersion, "core-components.yaml", "CAPI_VERSION"},
		{"bootstrap-talos", "BootstrapProvider", "talos", cfg.CABPTVersion, "bootstrap-components.yaml", "CABPT_VERSION"},
		{"control-plane-talos", "ControlPlaneProvider", "talos", cfg.CACPPTVersion, "control-plane-components.yaml", "CACPPT_VERSION"},
		{"infrastructure-hetzner", "InfrastructureProvider", "hetzner", cfg.CAPHVersion, "infrastructure-components.yaml", "CAPH_VERSION"},
	}
}

func providersSpec(cfg config.Config, tools platform.Tools, sources render.Sources) (any, error) {
	versions := map[string]string{}
	for _, p := range providersOf(cfg) {
		versions[p.label] = p.version
	}
	configured, err := sources.Clusterctl.Digest(nil)
	if err != nil {
		return nil, err
	}
	if _, err := clusterctlConfig(cfg, tools, sources); err != nil {
		return nil, err
	}
	return map[string]any{"versions": versions, "clusterctl": configured}, nil
}

// Providers adds the step capi-init to a graph: Cluster API and its providers are installed in the management cluster.
func (s *Set) Providers(g *flow.Graph, management *flow.Step[Management]) *flow.Step[Providers] {
	step := newProvidersStep(s)
	return flow.Add1(g, "capi-init", step.run, management).
		Doc("Cluster API and its providers for Hetzner and Talos are installed and serve").
		Spec(s.made.providers).Verify(step.verify).Deadline(2*s.cfg.ProvidersTimeout.D() + overhead).
		Waits(s.made.installing...)
}

// providersStep runs and verifies the step capi-init.
type providersStep struct {
	cfg     config.Config
	tools   platform.Tools
	sources render.Sources
}

func newProvidersStep(s *Set) providersStep {
	return providersStep{cfg: s.cfg, tools: s.tools, sources: s.sources}
}

// run installs the providers and waits until they serve. clusterctl skips what its inventory has, and then
// neither repairs nor waits for it: waiting is done here, in every case.
func (step providersStep) run(ctx context.Context, say flow.Say, m Management) (Providers, error) {
	return step.wantedProviders(), installProviders(ctx, step.cfg, step.tools, step.sources, say, m.Kubeconfig)
}

// installProviders does it in the cluster of a kubeconfig in the state folder.
func installProviders(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say, kubeconfig string) error {
	mgmt, err := platform.Connect(tools, kubeconfig)
	if err != nil {
		return err
	}
	installed, err := inventory(ctx, mgmt)
	if err != nil && !kube.Absent(err) {
		return err
	}
	missing, err := compare(cfg, installed)
	if err != nil {
		return err
	}
	what, unready := strings.Join(missing, ", "), ""
	if len(missing) == 0 {
		if unready, err = serving(ctx, mgmt); err != nil {
			return err
		}
		what = "what the providers need"
	}
	if len(missing) > 0 || unready != "" {
		if len(missing) > 0 {
			say("installing %s", what)
		}
		// What is installed already is skipped when it is tried again.
		err := wait.Retry(ctx, say, "the installation", func() error {
			if err := awaitTestGone(ctx, say, mgmt); err != nil {
				return err
			}
			if err := mendCertManager(ctx, cfg, tools, sources, say, mgmt, kubeconfig); err != nil || len(missing) == 0 {
				return err
			}
			if err := awaitTestGone(ctx, say, mgmt); err != nil { // the mending has one, too
				return err
			}
			return clusterctlInit(ctx, cfg, tools, sources, kubeconfig)
		})
		if err != nil {
			return fmt.Errorf("install %s: %w", what, err)
		}
	}
	changes, stop := watchProviders(ctx, mgmt)
	defer stop()
	return wait.Wait{What: "the providers to serve", Within: cfg.ProvidersTimeout.D(), Changes: changes}.Until(ctx, say, func(ctx context.Context) (string, error) {
		if unready, err := serving(ctx, mgmt); unready != "" || err != nil {
			return unready, err
		}
		// Only now, because an answer proves nothing while an old Pod may still give it.
		return mgmt.ProbeWebhooks(ctx, config.Namespace, capi.ProviderLabel)
	})
}

const (
	// certManagerNamespace is the one that clusterctl installs cert-manager in.
	certManagerNamespace = "cert-manager"
	// certManagerTest is the namespace in which clusterctl tries out cert-manager, and which it deletes.
	certManagerTest = "cert-manager-test"
	// testGoneWithin bounds a wait for it to be gone, which takes seconds. There are two, and they are part of the step's overhead.
	testGoneWithin = time.Minute
)

// awaitTestGone waits while what a test of cert-manager left, a dead run's or one of a moment ago, is being deleted. clusterctl takes a
// namespace on its way out for one that is there, and then tries for ten minutes to write into one that is gone.
func awaitTestGone(ctx context.Context, say flow.Say, mgmt *kube.Cluster) error {
	w := wait.Wait{What: "a test of cert-manager to be gone", Within: testGoneWithin, Every: wait.LookGap}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		namespace := &corev1.Namespace{}
		err := mgmt.Get(ctx, client.ObjectKey{Name: certManagerTest}, namespace)
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("look for namespace %s: %w", certManagerTest, err)
		case namespace.DeletionTimestamp == nil:
			return "", nil
		}
		return "namespace " + certManagerTest + " is being deleted", nil
	})
}

// mendCertManager completes what a run that was cut off installed of cert-manager. clusterctl takes it for installed when it can
// make a certificate's object, which it also can while nothing but the definitions is there, and then never adds the rest: no
// provider would ever get its certificate. Another version, and one that somebody else installed, is left alone.
func mendCertManager(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say, mgmt *kube.Cluster, kubeconfig string) error {
	err := mgmt.Get(ctx, client.ObjectKey{Name: certManagerNamespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return nil // clusterctl begins with the namespace
	}
	if err != nil {
		return fmt.Errorf("look for namespace %s: %w", certManagerNamespace, err)
	}
	c, err := newClusterctl(ctx, cfg, tools, sources)
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

func (step providersStep) wantedProviders() Providers {
	p := Providers{Versions: map[string]string{}}
	for _, w := range providersOf(step.cfg) {
		p.Versions[w.label] = w.version
	}
	return p
}

func watchProviders(ctx context.Context, mgmt *kube.Cluster) (<-chan struct{}, func()) {
	ctx, stop := context.WithCancel(ctx)
	return mgmt.Changes(ctx, kube.Selection{List: &appsv1.DeploymentList{}, Options: []client.ListOption{client.HasLabels{capi.ProviderLabel}}}), stop
}

// inventory lists what clusterctl has installed: provider → version.
func inventory(ctx context.Context, mgmt *kube.Cluster) (map[string]string, error) {
	l := capi.ListOf(capi.ProviderKind)
	if err := mgmt.List(ctx, l); err != nil {
		return nil, fmt.Errorf("list the installed providers: %w", err)
	}
	installed := map[string]string{}
	for i := range l.Items {
		installed[l.Items[i].GetName()] = capi.Text(&l.Items[i], "version")
	}
	return installed, nil
}

// compare lists the providers that are not installed. One that is installed at another version is an error: replacing it
// is an upgrade, which has rules of its own.
func compare(cfg config.Config, installed map[string]string) (missing []string, err error) {
	for _, p := range providersOf(cfg) {
		switch has := installed[p.label]; has {
		case "":
			missing = append(missing, p.label+" "+p.version)
		case p.version:
		default:
			return nil, fmt.Errorf("%s is installed at %s, not %s: configure the installed version, or upgrade it with clusterctl first", p.label, has, p.version)
		}
	}
	return missing, nil
}

// clusterctlInit names all four providers even where some are installed: clusterctl leaves those alone, and would add
// its own choice for a kind that is not named.
func clusterctlInit(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, kubeconfig string) error {
	c, err := newClusterctl(ctx, cfg, tools, sources)
	if err != nil {
		return err
	}
	p := providersOf(cfg)
	spec := func(p provider) string { return p.name + ":" + p.version }
	_, err = c.Init(ctx, clusterctl.InitOptions{
		Kubeconfig:              clusterctl.Kubeconfig{Path: tools.Files.Path(kubeconfig)},
		CoreProvider:            spec(p[0]),
		BootstrapProviders:      []string{spec(p[1])},
		ControlPlaneProviders:   []string{spec(p[2])},
		InfrastructureProviders: []string{spec(p[3])},
	})
	return err
}

// newClusterctl makes clusterctl's client with that configuration, in memory.
func newClusterctl(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources) (platform.Clusterctl, error) {
	settings, err := clusterctlConfig(cfg, tools, sources)
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

// overridesFolder is clusterctl's key for a folder whose manifests win over a provider's own. Without it that is a folder in the
// user's home, and a run on another machine would install something else: so a folder is named that nobody makes.
const (
	overridesFolder = "overridesFolder"
	noOverrides     = "no-overrides" // in the state folder
)

// clusterctlConfig is clusterctl's configuration, key by key as its reader takes them: manifests/clusterctl.yaml, and
// over it what Slipway's own configuration says.
func clusterctlConfig(cfg config.Config, tools platform.Tools, sources render.Sources) (map[string]string, error) {
	s := sources.Clusterctl
	entries, err := s.Values(sources.Vars)
	if err != nil {
		return nil, err
	}
	if cfg.ProviderRepository != "" {
		entries[clusterctlconfig.ProvidersConfigKey] = localProviders(cfg)
	}
	if entries[clusterctlconfig.CertManagerConfigKey], _, err = certManager(cfg, sources, entries); err != nil {
		return nil, err
	}
	if folder, _ := entries[overridesFolder].(string); strings.TrimSpace(folder) == "" {
		entries[overridesFolder] = tools.Files.Path(noOverrides)
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

// certManager is clusterctl's entry for cert-manager, and how long clusterctl waits for it: PROVIDERS_TIMEOUT, where
// manifests/clusterctl.yaml does not say.
func certManager(cfg config.Config, sources render.Sources, entries map[string]any) (entry map[string]any, timeout time.Duration, err error) {
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
		return nil, 0, fmt.Errorf("%s: %s: %q is not a time to wait: write a number and a unit (10m)", sources.Clusterctl.Name, key+"."+within, text)
	}
	return entry, timeout, nil
}

// localProviders points every provider's address into the local repository, as clusterctl lays one out.
func localProviders(cfg config.Config) []map[string]string {
	var local []map[string]string
	for _, p := range providersOf(cfg) {
		url := filepath.ToSlash(filepath.Join(cfg.ProviderRepository, p.label, p.version, p.file))
		local = append(local, map[string]string{"name": p.name, "type": p.kind, "url": url})
	}
	return local
}

// serving says what of the providers, and of cert-manager, does not serve yet, by reading only.
func serving(ctx context.Context, mgmt *kube.Cluster) (string, error) {
	var missing []string
	for _, selector := range []client.ListOption{client.HasLabels{capi.ProviderLabel}, client.MatchingLabels{capi.CoreLabel: capi.CertManagerCore}} {
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

func (step providersStep) verify(ctx context.Context, was Providers) flow.Verdict {
	mgmt, err := platform.Connect(step.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	installed, err := inventory(ctx, mgmt)
	if err != nil {
		return unless(err)
	}
	for label, version := range was.Versions {
		if installed[label] != version {
			return flow.Gone("provider %s %s is not installed any more", label, version)
		}
	}
	missing, err := serving(ctx, mgmt)
	switch {
	case err != nil:
		return unless(err)
	case missing != "":
		return flow.Gone("%s", missing)
	}
	return flow.Holds()
}
