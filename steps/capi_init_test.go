package steps

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/providers"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

// TestKilledInTheTestOfCertManager is a run after one that was killed while clusterctl deleted its test of cert-manager: the
// namespace is on its way out. clusterctl would take it for there.
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
				w.Management.Remove("v1", "Namespace", "", providers.CertManagerTestNamespace)
			})
		}
	}
	if err := providers.Install(t.Context(), b.cfg, b.tools, b.sources, say, platform.ManagementKubeconfig); err != nil {
		t.Fatal(err)
	}
	if early != 0 || inits() != 1 {
		t.Errorf("clusterctl was at work %d times while the namespace was being deleted (-1: it was not waited for), and %d times in all", early, inits())
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
		"before the providers":                   {there: clustertest.CertManagerDeployments[:1], version: clustertest.CertManagerVersion, whole: true},
		"the providers were installed, and wait": {there: clustertest.CertManagerDeployments[:1], version: clustertest.CertManagerVersion, installed: true, whole: true},
		"another version":                        {there: clustertest.CertManagerDeployments[:1], version: "v1.0.0"},
		"somebody else's":                        {there: nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			b := newSet(w.Config(), w.Tools(), planner(t, "").sources)
			b.sources.Vars = render.VariablesOf(b.cfg)
			if err := b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
			w.Management.Put(kubetest.Object("v1", "Namespace", "", providers.CertManagerNamespace, nil))
			for _, d := range tt.there {
				o := clustertest.CertManagerDeployment(d, tt.version)
				if tt.installed {
					o.Object["status"] = clustertest.Map{"replicas": int64(1), "updatedReplicas": int64(1), "availableReplicas": int64(0)}
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
					w.Management.Remove("v1", "Namespace", "", providers.CertManagerTestNamespace)
				}
			}
			if err := providers.Install(t.Context(), b.cfg, b.tools, b.sources, say, platform.ManagementKubeconfig); err != nil {
				t.Fatal(err)
			}
			if left := w.Management.Get("v1", "Namespace", "", providers.CertManagerTestNamespace); early != 0 || left != nil && !tt.installed {
				t.Errorf("clusterctl was at work %d times while the namespace of its test was being deleted, and then it is %v", early, left)
			}
			whole := true
			for _, d := range clustertest.CertManagerDeployments {
				whole = whole && w.Management.Get("apps/v1", "Deployment", providers.CertManagerNamespace, d) != nil
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

// TestNoOverridesFromTheHome holds that the user's home has no say in what is installed, unless the configuration names it.
func TestNoOverridesFromTheHome(t *testing.T) {
	b := planner(t, "")
	b.tools.Files = platform.FilesIn(t.TempDir())
	c, err := providers.ClusterctlConfig(b.cfg, b.tools, b.sources)
	if err != nil || c[providers.OverridesFolder] != b.tools.Files.Path(providers.NoOverrides) {
		t.Errorf("clusterctl takes overrides from %q, %v", c[providers.OverridesFolder], err)
	}
	dir := t.TempDir()
	write(t, dir, "manifests/clusterctl.yaml", "overridesFolder: /srv/overrides\n")
	b = planner(t, dir)
	if c, err = providers.ClusterctlConfig(b.cfg, b.tools, b.sources); err != nil || c[providers.OverridesFolder] != "/srv/overrides" {
		t.Errorf("the user's folder became %q, %v", c[providers.OverridesFolder], err)
	}
}

// TestClusterctlWaitsForCertManager holds for how long: PROVIDERS_TIMEOUT, unless the configuration of clusterctl says it.
func TestClusterctlWaitsForCertManager(t *testing.T) {
	own := t.TempDir()
	write(t, own, "manifests/clusterctl.yaml", "cert-manager: {version: v1.19.0, timeout: 12m}\n")
	for name, tt := range map[string]struct {
		b    *Set
		want string
	}{
		"nothing is said":  {planner(t, "", "PROVIDERS_TIMEOUT=7m"), "timeout: 7m0s\n"},
		"clusterctl's own": {planner(t, own, "PROVIDERS_TIMEOUT=7m"), "timeout: 12m\nversion: v1.19.0\n"},
		"cert-manager elsewhere": {planner(t, own, "PROVIDERS_TIMEOUT=7m", "CERT_MANAGER_URL=/repo/c.yaml", "CERT_MANAGER_VERSION=v1"),
			"timeout: 7m0s\nurl: /repo/c.yaml\nversion: v1\n"},
	} {
		if c, err := providers.ClusterctlConfig(tt.b.cfg, tt.b.tools, tt.b.sources); err != nil || c["cert-manager"] != tt.want {
			t.Errorf("%s: clusterctl is told %q, %v", name, c["cert-manager"], err)
		}
	}
}
