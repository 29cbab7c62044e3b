package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// clinic is a doctor with an environment in which every check passes, to be changed until one fails.
type clinic struct {
	store      *hetznertest.Server
	charts     *httptest.Server
	index      string
	github     string // what GitHub says of its budget
	cfg        config.Config
	overrides  string
	provider   *clustertest.Provider
	engine     *platform.Engine // of the provider; nil: it needs none
	impossible error            // why the provider does not work here; nil: it does
	files      platform.Files
	recorded   int64

	selfManaged bool
	routes      []netip.Prefix
	routesErr   error
}

func newClinic(t *testing.T) *clinic {
	t.Helper()
	c := &clinic{store: clustertest.NewMarket(t), cfg: config.Defaults(), overrides: t.TempDir(),
		provider: &clustertest.Provider{}, files: platform.FilesIn(t.TempDir()),
		engine: &platform.Engine{Name: "docker", Version: "28.0.1", CgroupV2: true, CanLimit: true, MemoryBytes: 8 * gib,
			DataRoot: "/data", FreeBytes: 40 * gib}}
	c.store.Budget(3600, 3000)
	c.store.Put("server_types", 1, schema.ServerType{Name: "cx33", Architecture: "x86",
		Prices:    []schema.PricingServerTypePrice{{Location: "nbg1"}},
		Locations: []schema.ServerTypeLocation{{Name: "nbg1", Available: true}}})
	c.store.Put("images", 99,
		schema.Image{Name: hcloud.Ptr("ubuntu-24.04"), Type: "system", Architecture: "x86", Status: "available"})
	c.github = `{"rate":{"limit":60,"remaining":55}}`
	c.index = "apiVersion: v1\nentries:\n"
	for name, version := range map[string]string{
		"cilium": c.cfg.CiliumVersion, "hcloud-cloud-controller-manager": c.cfg.HCloudCCMVersion,
		"talos-cloud-controller-manager": c.cfg.TalosCCMVersion,
	} {
		c.index += fmt.Sprintf("  %s:\n  - name: %s\n    version: %s\n    urls: [%s.tgz]\n", name, name, version, name)
	}
	archive := clinicChart(t)
	c.charts = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/index.yaml":
			fmt.Fprint(w, c.index)
		case "/rate_limit":
			fmt.Fprint(w, c.github)
		case "/cilium.tgz", "/hcloud-cloud-controller-manager.tgz", "/talos-cloud-controller-manager.tgz":
			_, _ = w.Write(archive)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(c.charts.Close)
	c.cfg.CiliumRepository, c.cfg.HCloudCCMRepository, c.cfg.TalosCCMRepository = c.charts.URL, c.charts.URL, c.charts.URL
	c.cfg.ProviderRepository = t.TempDir()
	for _, p := range capi.ConfiguredProviders(c.cfg) {
		c.release(t, p, "v1beta1")
	}
	return c
}

// clinicChart is an archive of a chart that does not render with hubble.relay without hubble.
func clinicChart(t *testing.T) []byte {
	t.Helper()
	file, err := chartutil.Save(&chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "chart", Version: "1.0.0"},
		Templates: []*chart.File{{Name: "templates/validate.yaml", Data: []byte(`{{ $h := default dict .Values.hubble }}` +
			`{{ if and $h.relay (not $h.enabled) }}{{ fail "Hubble Relay requires hubble" }}{{ end }}`)}}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// engineProvider makes its cluster in a container engine.
type engineProvider struct {
	*clustertest.Provider
	engine platform.Engine
}

func (p engineProvider) Engine(context.Context) (platform.Engine, error) {
	return p.engine, p.ExistsError
}

// components are manifests with the kinds that the cluster's objects are of; only those of CAPH have a schema.
func components(t *testing.T, p capi.Provider) string {
	t.Helper()
	lax := func(group, version, kind string) string {
		return fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: "+
			"x}\nspec:\n  group: %s\n  names: {kind: %s}\n  versions:\n"+
			"  - {name: %s, served: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: "+
			"true}}}\n", group, kind, version)
	}
	switch p.Label {
	case "cluster-api":
		return lax("cluster.x-k8s.io", "v1beta1", "Cluster") + "---\n" +
			lax("cluster.x-k8s.io", "v1beta1", "MachineHealthCheck")
	case "control-plane-talos":
		return lax("controlplane.cluster.x-k8s.io", "v1alpha3", "TalosControlPlane")
	case "infrastructure-hetzner":
		var both []byte
		for _, name := range []string{"hetznerclusters", "hcloudmachinetemplates"} {
			data, err := os.ReadFile("../../../lab/repository/caph/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			both = append(append(both, "\n---\n"...), data...)
		}
		return string(both)
	}
	return "{}"
}

// release puts a provider's version into the local repository.
func (c *clinic) release(t *testing.T, p capi.Provider, keeps string) {
	t.Helper()
	dir := filepath.Join(c.cfg.ProviderRepository, p.Label, p.Version)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	series := strings.Split(strings.TrimPrefix(p.Version, "v"), ".")
	metadata := fmt.Sprintf("apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- major: "+
		"%s\n  minor: %s\n  contract: %s\n", series[0], series[1], keeps)
	for name, text := range map[string]string{"metadata.yaml": metadata, p.File: components(t, p)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *clinic) examine(t *testing.T) map[string]Finding {
	t.Helper()
	var management platform.ManagementProvider = c.provider
	if c.engine != nil {
		management = engineProvider{c.provider, *c.engine}
	}
	if c.impossible != nil {
		management = impossibleProvider{c.provider, c.impossible}
	}
	tools := platform.Tools{Hetzner: c.store.Client(nil), Management: management, Files: c.files, Overrides: c.overrides}
	d := New(c.cfg, tools.WithDefaults(), clustertest.Sources(t, c.cfg, c.overrides)).
		Recorded(c.recorded).SelfManaged(c.selfManaged)
	d.routes = func() ([]netip.Prefix, error) { return c.routes, c.routesErr }
	d.http, d.github = c.charts.Client(), c.charts.URL
	d.within = time.Minute // what is asked answers: only a busy machine takes longer
	found := map[string]Finding{}
	before := c.store.Left()
	for _, f := range d.Examine(t.Context()) {
		found[f.Check] = f
	}
	if !slices.Equal(c.store.Left(), before) {
		t.Error("the doctor changed the project")
	}
	return found
}

// A core from 1.11 on runs providers of the contract before its own.
func TestDoctorPassesProvidersOfTheOlderContract(t *testing.T) {
	c := newClinic(t)
	c.release(t, capi.ConfiguredProviders(c.cfg)[0], "v1beta2")
	if f := c.examine(t)["providers"]; f.Verdict != OK || !strings.Contains(f.Reason, "go with the contract v1beta2") {
		t.Errorf("%+v", f)
	}
}

// A pool of the control plane's own server type needs nothing more; without pools there is no check of them.
func TestDoctorPassesWorkerPools(t *testing.T) {
	c := newClinic(t)
	if f, is := c.examine(t)["worker-pools"]; is {
		t.Errorf("without pools: %+v", f)
	}
	c.cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 2}}
	f := c.examine(t)["worker-pools"]
	if f.Verdict != OK || f.Reason != "pool general: 2 servers of type cx33 in nbg1 from image "+c.cfg.Image("amd64") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorPassesPatchesInside: each minor version of Talos that may be configured takes them.
func TestDoctorPassesPatchesInside(t *testing.T) {
	for minor := 8; minor <= 13; minor++ {
		c := newClinic(t)
		c.cfg.TalosVersion = fmt.Sprintf("v1.%d.0", minor)
		if f := c.examine(t)["patches"]; f.Verdict != OK {
			t.Errorf("%s: %+v", c.cfg.TalosVersion, f)
		}
	}
}

func TestDoctorPassesWhatIsWell(t *testing.T) {
	c := newClinic(t)
	found := c.examine(t)
	for name, f := range found {
		want := OK
		if name == "limits" { // the API does not return them
			want = Unknown
		}
		if f.Verdict != want || f.Reason == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if want := 22; len(found) != want {
		t.Errorf("there are %d checks, want %d: a new check is counted here", len(found), want)
	}
	if w := c.store.Writes(); !slices.Equal(w, []string{"DELETE /placement_groups/0"}) {
		t.Errorf("it asked for %v", w)
	}
}

// Of a cluster that exists the doctor says what exists, and not that it is to be created; one that manages itself needs
// no management cluster and no container engine.
func TestDoctorSaysWhatExists(t *testing.T) {
	c := newClinic(t)
	mine := map[string]string{"caph-cluster-k8s": "owned"}
	if f := c.examine(t)["limits"]; !strings.HasPrefix(f.Reason, "3 servers (4 in a rolling update) with a primary IP "+
		"each "+
		"and 1 load balancer are to be created") {
		t.Errorf("before the first run: %+v", f)
	}
	for i := range int64(2) {
		c.store.Put("servers", 10+i, schema.Server{Name: fmt.Sprint("k8s-control-plane-", i), Status: "running",
			Labels: mine})
	}
	c.store.Put("load_balancers", 20, schema.LoadBalancer{Name: "k8s-kube-apiserver-abcde", Labels: mine})
	if f := c.examine(t)["limits"]; !strings.HasPrefix(f.Reason, "2 servers with a primary IP each and 1 load "+
		"balancer exist; "+
		"1 server with a primary IP each and 0 load balancers are to be created") {
		t.Errorf("in between: %+v", f)
	}
	c.store.Put("servers", 12, schema.Server{Name: "k8s-control-plane-2", Status: "running", Labels: mine})
	f := c.examine(t)["limits"]
	if !strings.HasPrefix(f.Reason, "3 servers with a primary IP each and 1 load balancer exist; a rolling update") ||
		f.Verdict != Unknown || strings.Contains(f.Reason, "created") {
		t.Errorf("all exist: %+v", f)
	}
	c.provider.ExistsError = errors.New("no Docker")
	c.selfManaged = true
	found := c.examine(t)
	for _, name := range []string{"management", "engine"} {
		if f := found[name]; f.Verdict != OK || !strings.Contains(f.Reason, "manages itself") {
			t.Errorf("after the pivot, %s: %+v", name, f)
		}
	}
}

func TestDoctorFindsWhatIsNotWell(t *testing.T) {
	others := map[string]string{"caph-cluster-other": "owned"}
	values := func(file, old, now string) func(*testing.T, *clinic) {
		return func(t *testing.T, c *clinic) {
			clustertest.Edit(t, c.overrides, "bootstrap/"+file, clustertest.Replacing(old, now))
		}
	}
	manifest := func(old, now string) func(*testing.T, *clinic) {
		return func(t *testing.T, c *clinic) {
			clustertest.Edit(t, c.overrides, "manifests/cluster.yaml", clustertest.Replacing(old, now))
		}
	}
	cfg := func(kv string) func(*testing.T, *clinic) {
		return func(t *testing.T, c *clinic) { clustertest.Configure(t, &c.cfg, kv) }
	}
	// One worker pool beside the control plane, in a market that has more than cx33.
	pool := func(p config.WorkerPool) func(*testing.T, *clinic) {
		return func(_ *testing.T, c *clinic) {
			p.Name, p.Replicas = "general", 2
			c.cfg.Workers = config.WorkerPools{p}
			for i, kind := range []struct {
				name, architecture string
				stock              bool
			}{{"cpx62", "x86", false}, {"cax21", "arm", true}} {
				c.store.Put("server_types", int64(50+i), schema.ServerType{Name: kind.name, Architecture: kind.architecture,
					Prices:    []schema.PricingServerTypePrice{{Location: "nbg1"}},
					Locations: []schema.ServerTypeLocation{{Name: "nbg1", Available: kind.stock}}})
			}
		}
	}
	for name, tc := range map[string]struct {
		make    func(*testing.T, *clinic)
		check   string
		verdict Verdict
		says    string
	}{
		"a Talos too old":     {cfg("TALOS_VERSION=v1.5.0"), "versions", Failed, "is too old for this command"},
		"another Cluster API": {cfg("CAPI_VERSION=v1.9.0"), "versions", Failed, "choose v1.10 and newer"},
		"a core that was not tried": {func(t *testing.T, c *clinic) {
			cfg("CAPI_VERSION=v1.14.2")(t, c)
			cfg("CAPH_VERSION=v1.1.8")(t, c)
		}, "versions", Unknown, "Cluster API v1.14 was not tried"},
		"an old kind image": {cfg("KIND_NODE_IMAGE=kindest/node:v1.31.0"), "versions", Unknown,
			"is tested with management clusters of Kubernetes v1.32 to v1.37, not with 1.31.0"},
		"a kind image of long ago": {cfg("KIND_NODE_IMAGE=kindest/node:v1.19.0"), "versions", Failed, "v1.20 and newer"},
		"ranges in each other":     {cfg("POD_CIDR=10.10.64.0/17"), "address-ranges", Failed, "podCidr"},
		"a route into the network": {func(_ *testing.T,
			c *clinic) {
			c.routes = []netip.Prefix{netip.MustParsePrefix("10.10.5.0/24")}
		}, "address-ranges", Failed, "10.10.5.0/24"},
		"routes that cannot be read": {func(_ *testing.T, c *clinic) { c.routesErr = errors.New("no") }, "address-ranges",
			Unknown, "cannot be read"},
		"no endpoint": {manifest("  controlPlaneEndpoint:\n    host: \"${LOAD_BALANCER_IP:=}\"\n    port: 6443\n",
			""), "manifests", Failed, "controlPlaneEndpoint"},
		"an even control plane": {manifest("replicas: ${CONTROL_PLANE_REPLICAS:=3}", "replicas: 2"), "manifests", Failed,
			"2 replicas"},
		"a JSON patch among the others": {manifest("        - |\n          machine:\n            certSANs:\n              "+
			"- ${LOAD_BALANCER_IP}\n",
			"        - |\n          [{\"op\": \"add\", \"path\": \"/machine/certSANs\", \"value\": [\"${LOAD_BALANCER_IP}\"]}]\n"), "patches", Failed, "JSON patch"},
		"configPatches": {manifest("      strategicPatches:\n", "      configPatches:\n        - op: remove\n  "+
			"        path: /machine\n      strategicPatches:\n"), "patches", Failed, "configPatches"},
		"an unknown key in a patch": {manifest("hostDNS:\n", "hostDSN:\n"), "patches", Failed, "hostDSN"},
		"kube-proxy on": {manifest("            proxy:\n              disabled: true\n", ""), "patches", Failed,
			"cluster.proxy.disabled is missing"},
		"a hostname": {manifest("      generateType: controlplane\n", "      generateType: controlplane\n   "+
			"   hostname:\n        source: MachineName\n"), "patches", Failed, "hostname.source"},
		"a forbidden capability": {values("cilium-values.yaml", "      - CHOWN\n", "      - CHOWN\n      - SYS_MODULE\n"),
			"helm-values", Failed, "SYS_MODULE"},
		"no KubePrism": {values("cilium-values.yaml", "k8sServicePort: 7445", "k8sServicePort: 6443"),
			"helm-values", Failed, "k8sServicePort is 6443"},
		"a CCM without the network": {values("hcloud-ccm-values.yaml", "  enabled: true", "  enabled: false"), "helm-values",
			Failed, "networking.enabled is false"},
		"two controllers for one": {values("talos-ccm-values.yaml", "  - node-csr-approval", "  - node-csr-approval\n  - "+
			"cloud-node"), "helm-values", Failed, "enabledControllers"},
		"a provider that keeps another contract": {func(t *testing.T, c *clinic) {
			c.release(t, capi.ConfiguredProviders(c.cfg)[3], "v1beta2")
		}, "providers", Failed, "keeps the contract v1beta2"},
		"a core of a contract to come": {func(t *testing.T, c *clinic) {
			c.release(t, capi.ConfiguredProviders(c.cfg)[0], "v1beta3")
		}, "providers", Failed, "keeps the contract v1beta3, which this version"},
		"a provider's version that is not there": {cfg("CAPH_VERSION=v1.0.99"), "providers", Failed, "v1.0.99"},
		"a chart's version that is not there": {cfg("CILIUM_VERSION=1.18.99"), "charts", Failed,
			"no chart cilium 1.18.99"},
		"a repository that is not there": {cfg("CILIUM_REPOSITORY=http://127.0.0.1:1"), "charts", Unknown, "cilium"},
		"values that a chart refuses": {func(t *testing.T, c *clinic) {
			file := filepath.Join(c.overrides, "bootstrap", "cilium-values.yaml")
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
				os.WriteFile(file, []byte("hubble: {enabled: false, relay: {enabled: true}}\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, "chart-values", Failed, "cilium-values.yaml: chart cilium"},
		"a registry": {cfg("TALOS_CCM_REPOSITORY=oci://127.0.0.1:1/charts"), "charts", Unknown,
			"talos-cloud-controller-manager"},
		"GitHub has had enough": {func(_ *testing.T, c *clinic) {
			c.cfg.ProviderRepository, c.github = "", `{"rate":{"limit":60,"remaining":3}}`
		}, "github-budget", Failed, "3 of 60"},
		"GitHub does not tell": {func(_ *testing.T, c *clinic) { c.cfg.ProviderRepository, c.github = "", `{}` },
			"github-budget", Unknown, "does not say"},
		"no container engine": {func(_ *testing.T, c *clinic) { c.provider.ExistsError = errors.New("no Docker") }, "engine",
			Failed, "no Docker"},
		"a token for reading": {func(_ *testing.T, c *clinic) { c.store.ReadOnly() }, "token", Failed, "reading only"},
		"a type that is not sold there": {func(_ *testing.T, c *clinic) {
			c.store.Put("server_types", 1,
				schema.ServerType{Name: "cx33", Prices: []schema.PricingServerTypePrice{{Location: "fsn1"}}})
		}, "server-type", Failed, "fsn1"},
		"a type that is withdrawn": {func(_ *testing.T, c *clinic) {
			c.store.Put("server_types", 1, schema.ServerType{Name: "cx33", DeprecatableResource: schema.DeprecatableResource{
				Deprecation: &schema.DeprecationInfo{Announced: time.Now(), UnavailableAfter: time.Now().AddDate(0, 3, 0)}}})
		}, "server-type", Failed, "withdrawn"},
		"out of stock": {func(_ *testing.T, c *clinic) {
			c.store.Put("server_types", 1,
				schema.ServerType{Name: "cx33", Locations: []schema.ServerTypeLocation{{Name: "nbg1"}}})
		}, "server-type", Failed, "out of stock"},
		"stock that is not told": {func(_ *testing.T,
			c *clinic) {
			c.store.Put("server_types", 1, schema.ServerType{Name: "cx33"})
		}, "server-type", Unknown, "does not report whether"},
		"a surge too wide": {manifest("replicas: ${CONTROL_PLANE_REPLICAS:=3} #", "replicas: 11 #"), "capacity",
			Failed, "11 servers"},
		"the surge is the one too many": {manifest("replicas: ${CONTROL_PLANE_REPLICAS:=3} #", "replicas: 10 #"), "capacity",
			Failed, "10 servers and 1 more"},
		"a load balancer too small": {func(_ *testing.T, c *clinic) {
			c.store.Put("load_balancer_types", 1, schema.LoadBalancerType{Name: "lb11", MaxTargets: 3, MaxServices: 5})
		}, "capacity", Failed, "3 targets"},
		"a load balancer of few services": {func(_ *testing.T, c *clinic) {
			c.store.Put("load_balancer_types", 1, schema.LoadBalancerType{Name: "lb11", MaxTargets: 25, MaxServices: 1})
		}, "capacity", Failed, "2 services"},
		"a load balancer type withdrawn": {func(_ *testing.T, c *clinic) {
			c.store.Put("load_balancer_types", 1,
				schema.LoadBalancerType{Name: "lb11", MaxTargets: 25, MaxServices: 5,
					DeprecatableResource: schema.DeprecatableResource{
						Deprecation: &schema.DeprecationInfo{Announced: time.Now(), UnavailableAfter: time.Now().AddDate(0, 3, 0)}}})
		}, "server-type", Failed, "lb11 is withdrawn"},
		"Cilium on a Kubernetes that it is not tested with": {func(t *testing.T, c *clinic) {
			cfg("TALOS_VERSION=v1.11.0")(t, c)
			cfg("KUBERNETES_VERSION=v1.29.0")(t, c)
		}, "versions", Unknown, "not with v1.29.0"},
		"a Talos that is newer than the machinery inside": {cfg("TALOS_VERSION=v1.14.0"), "patches", Unknown,
			"whether they fit v1.14.0"},
		"own patches, and an older Talos": {func(t *testing.T, c *clinic) {
			cfg("TALOS_VERSION=v1.11.0")(t, c)
			manifest("algorithm: round_robin", "algorithm: least_connections")(t, c)
		}, "patches", Unknown, "whether they fit v1.11.0"},
		"a Cilium version that is not known": {cfg("CILIUM_VERSION=1.16.0"), "versions", Unknown, "Cilium 1.16"},
		"an unknown field": {manifest("    algorithm: round_robin\n", "    algorithm: round_robin\n    "+
			"algorythm: x\n"), "schemas", Failed, "unknown field spec.controlPlaneLoadBalancer.algorythm"},
		"a value that the schema refuses": {manifest("algorithm: round_robin", "algorithm: random"), "schemas", Failed,
			"algorithm"},
		"a kind that does not exist": {manifest("kind: HCloudMachineTemplate\nmetadata",
			"kind: HCloudMachineTemplates\nmetadata"), "schemas", Failed, "no kind HCloudMachineTemplates"},
		"a kind that no provider has": {manifest("---\napiVersion: cluster", "---\napiVersion: v1\nkind: "+
			"ConfigMap\nmetadata: {name: x}\n---\napiVersion: cluster"), "schemas", Unknown, "no provider brings"},
		"patches that make no configuration": {manifest("                name: none\n", "                name: nothing\n"),
			"patches", Failed, "cni"},
		"a join in place of a control plane": {manifest("generateType: controlplane", "generateType: init"), "patches",
			Failed, "generateType"},
		"an engine without the right to limit": {func(_ *testing.T, c *clinic) {
			c.engine.Rootless, c.engine.CanLimit = true,
				false
		}, "engine", Failed, "may not limit"},
		"an engine without cgroup v2": {func(_ *testing.T, c *clinic) { c.engine.Rootless, c.engine.CgroupV2 = true, false },
			"engine", Failed, "cgroup v1"},
		"an engine with a full disk": {func(_ *testing.T, c *clinic) { c.engine.FreeBytes = gib }, "engine", Failed,
			"1.0 GiB free in /data"},
		"an engine with little memory": {func(_ *testing.T, c *clinic) { c.engine.MemoryBytes = gib }, "engine", Failed,
			"1.0 GiB of memory"},
		"an engine whose user watches too many files": {func(_ *testing.T, c *clinic) {
			c.engine.InotifyUsed, c.engine.InotifyLimit = 100, 128
		}, "engine", Failed, "100 of 128 inotify instances"},
		"an engine that does not tell": {func(_ *testing.T, c *clinic) { c.engine.FreeBytes = 0 }, "engine", Unknown,
			"does not report how much of its disk"},
		"another state folder's name": {func(_ *testing.T, c *clinic) {
			c.store.Put("placement_groups", 51,
				schema.PlacementGroup{Name: "slipway-k8s",
					Labels: map[string]string{"slipway-cluster": "k8s", "slipway-reserved-by": "0123456789abcdef"}})
		}, "reservation", Failed, "0123456789abcdef"},
		"a cluster with the name that another state folder created": {func(_ *testing.T, c *clinic) {
			c.store.Put("networks", 52,
				schema.Network{Name: "k8s", IPRange: "10.10.0.0/16", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
		}, "reservation", Failed, "1 resources of a cluster k8s"},
		"a cluster that the management cluster may know": {func(t *testing.T, c *clinic) {
			c.store.Put("networks", 52,
				schema.Network{Name: "k8s", IPRange: "10.10.0.0/16", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
			c.provider.There = true
		}, "reservation", Unknown, "did not create"},
		"a token of another project": {func(_ *testing.T, c *clinic) { c.recorded = 4711 }, "project", Failed,
			"another project"},
		"nothing to make an image with": {func(_ *testing.T, c *clinic) {
			c.store.Put("server_types", 1,
				schema.ServerType{Name: "cx33", Architecture: "x86", Prices: []schema.PricingServerTypePrice{{Location: "nbg1"}},
					Locations: []schema.ServerTypeLocation{{Name: "nbg1"}}})
		}, "image", Failed, "is in stock in nbg1"},
		"nothing to start an image's server from": {func(_ *testing.T, c *clinic) {
			c.store.Put("images", 99, schema.Image{Name: hcloud.Ptr("debian"), Architecture: "x86"})
		}, "image", Failed, "no image ubuntu-24.04"},
		"a foreign server with our name": {func(_ *testing.T, c *clinic) {
			c.store.Put("servers", 61, schema.Server{Name: "k8s-control-plane-1a2b3-x7k2p"})
		}, "names", Failed, "server k8s-control-plane-1a2b3-x7k2p (61)"},
		"a foreign load balancer with our name": {func(_ *testing.T, c *clinic) {
			c.store.Put("load_balancers", 62, schema.LoadBalancer{Name: "k8s-kube-apiserver-x7k2p"})
		}, "names", Failed, "load balancer k8s-kube-apiserver-x7k2p (62)"},
		"two images": {func(_ *testing.T, c *clinic) {
			c.store.Put("images", 21, hetznertest.Image(21, c.cfg.Image("amd64"), "x86", "available"))
			c.store.Put("images", 22, hetznertest.Image(22, c.cfg.Image("amd64"), "x86", "available"))
		}, "image", Failed, "2 images"},
		"a foreign network with our name": {func(_ *testing.T, c *clinic) {
			c.store.Put("networks", 31, schema.Network{Name: "k8s", IPRange: "172.16.0.0/16"})
		}, "names", Failed, "network k8s (31)"},
		"another cluster's network over ours": {func(_ *testing.T, c *clinic) {
			c.store.Put("networks", 32, schema.Network{Name: "other", IPRange: "10.10.128.0/20", Labels: others})
		}, "networks", Failed, "other (10.10.128.0/20)"},
		"few requests left": {func(_ *testing.T, c *clinic) { c.store.Budget(120, 12) }, "hetzner-budget", Failed,
			"12 of 120 requests are left; a bootstrap may need 300 within 1h00m"},
		"requests untold": {func(_ *testing.T, c *clinic) { c.store.Budget(0, 0) }, "hetzner-budget", Unknown,
			"does not say"},
		"a pool's server type that does not exist": {pool(config.WorkerPool{ServerType: "cx99"}), "worker-pools", Failed,
			"cx99"},
		"a pool out of stock": {pool(config.WorkerPool{ServerType: "cpx62"}), "worker-pools", Failed,
			"worker pool general: "},
		"a pool whose image does not exist": {pool(config.WorkerPool{Image: "gpu"}), "worker-pools", Failed,
			"worker pool general: no image for amd64 carries the label caph-image-name=gpu (a snapshot's description does not count)"},
		"a pool of another architecture": {pool(config.WorkerPool{ServerType: "cax21"}), "worker-pools", Failed,
			"are arm64, and a run makes no image for those"},
		"somebody's server with a pool's name": {func(t *testing.T, c *clinic) {
			pool(config.WorkerPool{})(t, c)
			c.store.Put("servers", 7, schema.Server{Name: "k8s-general-7f8b9-x2x4z", Labels: others})
		}, "worker-pools", Failed, "k8s-general-7f8b9-x2x4z"},
		"somebody's placement group with a pool's name": {func(t *testing.T, c *clinic) {
			pool(config.WorkerPool{})(t, c)
			c.store.Put("placement_groups", 7, schema.PlacementGroup{Name: "k8s-general", Labels: others})
		}, "worker-pools", Failed, "k8s-general"},
		"Hetzner is silent": {func(_ *testing.T, c *clinic) { c.store.Close() }, "project", Unknown, "could not ask"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClinic(t)
			tc.make(t, c)
			f := c.examine(t)[tc.check]
			if f.Verdict != tc.verdict || !strings.Contains(f.Reason, tc.says) || f.WayOut == "" {
				t.Errorf("%s: %+v; want %s, saying %q, and a way out", tc.check, f, tc.verdict, tc.says)
			}
		})
	}
}

// The project is identified by what is in it.
func TestDoctorKeepsThePasswordOfARepository(t *testing.T) {
	for name, make := range map[string]func(*clinic){
		"no such version":       func(c *clinic) { c.cfg.CiliumVersion = "1.18.99" },
		"no index":              func(c *clinic) { c.cfg.CiliumRepository += "/nowhere" },
		"a damaged index":       func(c *clinic) { c.index = "\t" },
		"no registry is behind": func(c *clinic) { c.cfg.CiliumRepository = "http://127.0.0.1:1" },
	} {
		c := newClinic(t)
		make(c)
		c.cfg.CiliumRepository = strings.Replace(c.cfg.CiliumRepository, "http://", "http://me:planted@", 1)
		if f := c.examine(t)["charts"]; f.Verdict == OK || strings.Contains(f.Reason, "planted") ||
			strings.Contains(f.Reason, "me:") || !strings.Contains(f.Reason, "xxxxx@") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestDoctorTellsWhoseProjectItIs(t *testing.T) {
	c := newClinic(t)
	c.store.Put("networks", 41,
		schema.Network{Name: "shop", IPRange: "172.16.0.0/16", Labels: map[string]string{"caph-cluster-shop": "owned"}})
	if f := c.examine(t)["project"]; f.Verdict != OK || !strings.Contains(f.Reason, "1 of cluster shop") {
		t.Errorf("%+v", f)
	}
}

func TestDoctorWithoutToken(t *testing.T) {
	tools := platform.Tools{Management: &clustertest.Provider{}, Files: platform.FilesIn(t.TempDir())}
	d := New(config.Defaults(), tools.WithDefaults(),
		clustertest.Sources(t, config.Defaults(), "")).For([]string{"firewall"})
	found := d.Examine(t.Context())
	for _, f := range found {
		if atHetzner(f.Check) && f.Verdict != Unknown {
			t.Errorf("%+v", f)
		}
	}
	if len(found) != 4 { // versions, token, project, budget: the rest does not matter to a firewall
		t.Errorf("%d checks: %+v", len(found), found)
	}
}

func TestDoctorDoesNotWaitForEver(t *testing.T) {
	c := check{"slow", nil, func(ctx context.Context) Finding { select {} }}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if f := inTime(ctx, c); f.Verdict != Unknown {
		t.Errorf("%+v", f)
	}
}

func TestParseRoutes(t *testing.T) {
	table := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"tun0\t00400A0A\t00000000\t0001\t0\t0\t0\t80FFFFFF\t0\t0\t0\n" +
		"lo\t0000007F\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
	if got := parseRoutes(table); !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("10.10.64.0/25")}) {
		t.Errorf("%v", got)
	}
}

// A management cluster that this machine does not allow is found before the run.
func TestManagementThatIsNotPossible(t *testing.T) {
	c := newClinic(t)
	c.engine, c.impossible = nil, errors.New("no namespaces here")
	if f := c.examine(t)["management"]; f.Verdict != Failed || f.Reason != "no namespaces here" {
		t.Errorf("management: %+v", f)
	}
}

// impossibleProvider does not work on this machine.
type impossibleProvider struct {
	platform.ManagementProvider
	reason error
}

func (p impossibleProvider) Possible(context.Context) error { return p.reason }

// With few requests left a bootstrap is slow, and works: they come back.
func TestFewRequestsAreEnough(t *testing.T) {
	c := newClinic(t)
	c.store.Budget(3600, 200)
	if f := c.examine(t)["hetzner-budget"]; f.Verdict != OK || !strings.Contains(f.Reason, "200 of 3600") ||
		!strings.Contains(f.Reason, "slower now, its requests wait until 450 are left, in 4m10s at the earliest") {
		t.Errorf("%+v", f)
	}
	c.cfg.BootstrapTimeout = config.Duration(time.Minute)
	if f := c.examine(t)["hetzner-budget"]; f.Verdict != Failed || !strings.Contains(f.Reason, "300 within 1m00s") {
		t.Errorf("%+v", f)
	}
}
