package steps

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// TestKilledInTheTestOfCertManager is a run after one that was killed while clusterctl deleted its test of
// cert-manager: the namespace is on its way out. clusterctl would take it for there.
func TestKilledInTheTestOfCertManager(t *testing.T) {
	w := clustertest.New(t)
	b := newSet(w.Config(), w.Tools(), planner(t, "").sources)
	b.sources.Vars = render.VariablesOf(b.cfg)
	if err := b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	w.Management.Put(clustertest.CertManagerTestBeingDeleted())
	inits := func() int {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		return len(w.Inits)
	}
	var once sync.Once
	early := -1
	say := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); strings.Contains(line, "is being deleted") {
			once.Do(func() {
				early = inits()
				w.Management.Remove("v1", "Namespace", "", capi.CertManagerTestNamespace)
			})
		}
	}
	if err := capiinit.Install(t.Context(), b.cfg, b.tools, b.sources, say, platform.ManagementKubeconfig); err != nil {
		t.Fatal(err)
	}
	if early != 0 || inits() != 1 {
		t.Errorf("clusterctl was at work %d times while the namespace was being deleted (-1: it was not waited for), and "+
			"%d times in all", early, inits())
	}
}

// TestKilledWhileCertManagerWasInstalled is a run after one that was killed between cert-manager's definitions and its
// Deployments: clusterctl takes it for installed, and no provider ever gets a certificate.
func TestKilledWhileCertManagerWasInstalled(t *testing.T) {
	for name, tt := range map[string]struct {
		there     []string // Deployments of cert-manager
		version   string
		installed bool // the providers are
		whole     bool // all three Deployments are there at the end
	}{
		"before the providers": {there: clustertest.CertManagerDeployments[:1],
			version: clustertest.CertManagerVersion, whole: true},
		"the providers were installed, and wait": {there: clustertest.CertManagerDeployments[:1],
			version: clustertest.CertManagerVersion, installed: true, whole: true},
		"another version": {there: clustertest.CertManagerDeployments[:1], version: "v1.0.0"},
		"somebody else's": {there: nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			b := newSet(w.Config(), w.Tools(), planner(t, "").sources)
			b.sources.Vars = render.VariablesOf(b.cfg)
			if err := b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
			w.Management.Put(kubetest.Object("v1", "Namespace", "", capi.CertManagerNamespace, nil))
			for _, d := range tt.there {
				o := clustertest.CertManagerDeployment(d, tt.version)
				if tt.installed {
					o.Object["status"] = clustertest.Map{"replicas": int64(1), "updatedReplicas": int64(1),
						"availableReplicas": int64(0)}
				}
				w.Management.Put(o)
			}
			if tt.installed {
				w.Install(config.Defaults())
			}
			early := 0
			say := func(format string, args ...any) {
				if strings.Contains(fmt.Sprintf(format, args...), "is being deleted") {
					w.Mu.Lock()
					early += len(w.Inits)
					w.Mu.Unlock()
					w.Management.Remove("v1", "Namespace", "", capi.CertManagerTestNamespace)
				}
			}
			if err := capiinit.Install(t.Context(), b.cfg, b.tools, b.sources, say, platform.ManagementKubeconfig); err != nil {
				t.Fatal(err)
			}
			if left := w.Management.Get("v1", "Namespace", "", capi.CertManagerTestNamespace); early != 0 || left != nil &&
				!tt.installed {
				t.Errorf("clusterctl was at work %d times while the namespace of its test was being deleted, and then it is %v",
					early, left)
			}
			whole := true
			for _, d := range clustertest.CertManagerDeployments {
				whole = whole && w.Management.Get("apps/v1", "Deployment", capi.CertManagerNamespace, d) != nil
			}
			if whole != tt.whole {
				t.Errorf("cert-manager is whole: %v, not %v", whole, tt.whole)
			}
			if inits := len(w.Inits); (inits == 0) != tt.installed {
				t.Errorf("clusterctl init ran %d times", inits)
			}
		})
	}
}

// TestNoOverridesFromTheHome holds that the user's home has no say in what is installed, unless the configuration names
// it.
func TestNoOverridesFromTheHome(t *testing.T) {
	b := planner(t, "")
	b.tools.Files = platform.FilesIn(t.TempDir())
	c, err := capiinit.ClusterctlConfig(b.cfg, b.tools, b.sources)
	if err != nil || c[capiinit.OverridesFolder] != b.tools.Files.Path(capiinit.NoOverrides) {
		t.Errorf("clusterctl takes overrides from %q, %v", c[capiinit.OverridesFolder], err)
	}
	dir := t.TempDir()
	write(t, dir, "manifests/clusterctl.yaml", "overridesFolder: /srv/overrides\n")
	b = planner(t, dir)
	if c, err = capiinit.ClusterctlConfig(b.cfg, b.tools, b.sources); err != nil ||
		c[capiinit.OverridesFolder] != "/srv/overrides" {
		t.Errorf("the user's folder became %q, %v", c[capiinit.OverridesFolder], err)
	}
}

// TestClusterctlWaitsForCertManager holds for how long: PROVIDERS_TIMEOUT, unless the configuration of clusterctl says
// it.
func TestClusterctlWaitsForCertManager(t *testing.T) {
	own := t.TempDir()
	write(t, own, "manifests/clusterctl.yaml", "cert-manager: {version: v1.19.0, timeout: 12m}\n")
	for name, tt := range map[string]struct {
		b    *Set
		want string
	}{
		"nothing is said":  {planner(t, "", "PROVIDERS_TIMEOUT=7m"), "timeout: 7m0s\n"},
		"clusterctl's own": {planner(t, own, "PROVIDERS_TIMEOUT=7m"), "timeout: 12m\nversion: v1.19.0\n"},
		"cert-manager elsewhere": {planner(t, own, "PROVIDERS_TIMEOUT=7m", "CERT_MANAGER_URL=/repo/c.yaml",
			"CERT_MANAGER_VERSION=v1"),
			"timeout: 7m0s\nurl: /repo/c.yaml\nversion: v1\n"},
	} {
		if c, err := capiinit.ClusterctlConfig(tt.b.cfg, tt.b.tools, tt.b.sources); err != nil ||
			c["cert-manager"] != tt.want {
			t.Errorf("%s: clusterctl is told %q, %v", name, c["cert-manager"], err)
		}
	}
}

// How long clusterctl waits for cert-manager counts like every other wait.
func TestCertManagersTimeoutIsAddedUp(t *testing.T) {
	for timeout, says := range map[string]string{
		"{timeout: 16m}":  "",
		"{version: v1.2}": "",
		"":                "",
		"{timeout: 40m}":  "step capi-init waits up to 1m0s for a download that fails to succeed + 40m0s for cert-manager",
		"{timeout: 600}":  `manifests/clusterctl.yaml: cert-manager.timeout: "600" is not a time to wait`,
		"{timeout: -1s}":  `"-1s" is not a time to wait`,
		"ten minutes":     "manifests/clusterctl.yaml: cert-manager: it is no map",
	} {
		dir := t.TempDir()
		write(t, dir, "manifests/clusterctl.yaml", "cert-manager: "+timeout+"\n")
		_, err := New(config.Defaults(),
			platform.Tools{Management: &clustertest.Provider{}, Files: platform.FilesIn(t.TempDir()), Overrides: dir})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("cert-manager: %s: %v does not say %q", timeout, err, says)
		}
	}
}

func TestProvidersAreNotReplaced(t *testing.T) {
	w := clustertest.New(t)
	old := config.Defaults()
	old.CABPTVersion = "v0.6.0"
	w.Install(old)
	_, err := runPlan(t, w, w.Config(), flow.Memory(), nil)
	if err == nil || !strings.Contains(err.Error(), "bootstrap-talos is installed at v0.6.0, not v0.6.12") {
		t.Errorf("got %v", err)
	}
	if len(w.Inits) > 0 {
		t.Error("clusterctl was called")
	}
}

func TestClusterctlIsToldEverything(t *testing.T) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.ProviderRepository = filepath.Join(w.State, "repository")
	if _, err := runPlan(t, w, cfg, flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	if len(w.Inits) != 1 {
		t.Fatalf("%d calls", len(w.Inits))
	}
	o := w.Inits[0]
	got := strings.Join(slices.Concat([]string{o.CoreProvider}, o.BootstrapProviders, o.ControlPlaneProviders,
		o.InfrastructureProviders), " ")
	if got != "cluster-api:v1.13.6 talos:v0.6.12 talos:v0.5.13 hetzner:v1.1.8" {
		t.Errorf("asked for %s", got)
	}
	for _, want := range []string{
		"cluster-api/v1.13.6/core-components.yaml", "bootstrap-talos/v0.6.12/bootstrap-components.yaml",
		"control-plane-talos/v0.5.13/control-plane-components.yaml",
		"infrastructure-hetzner/v1.1.8/infrastructure-components.yaml",
	} {
		if !slices.Contains(w.ProviderURLs, cfg.ProviderRepository+"/"+want) {
			t.Errorf("no provider comes from %s: %v", want, w.ProviderURLs)
		}
	}
}
