// The manifests configure the network in the machine document, as the guide does; Talos 1.12 reads it and calls the
// fields that hold it deprecated.
//
//lint:file-ignore SA1019 what is asserted is what the manifests write.

package steps

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/platform"
)

var update = flag.Bool("update", false, "write the golden files anew")

// planner makes what renders, without anything that it could speak to.
func planner(t *testing.T, overrides string, kvs ...string) *Set {
	t.Helper()
	cfg := config.Defaults()
	for _, kv := range kvs {
		clustertest.Configure(t, &cfg, kv)
	}
	s, err := render.Read(render.VariablesOf(cfg), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return newSet(cfg, platform.Tools{}, s)
}

// withIP renders with everything known.
func withIP(t *testing.T, b *Set) *render.Rendered {
	t.Helper()
	r, err := render.Manifests(b.cfg, b.sources,
		render.ManifestVariables(b.sources, b.cfg.Image("amd64"), "eu-central", render.Endpoint{IP: "192.0.2.10"}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind {
			return o
		}
	}
	t.Fatalf("no %s was rendered", kind)
	return nil
}

func TestRenderGolden(t *testing.T) {
	for name, b := range map[string]*Set{
		"cluster": planner(t, ""),
		"oidc": planner(t, "", "OIDC_ISSUER_URL=https://auth.example.com/", "OIDC_CLIENT_ID=kubernetes",
			"CLUSTER_NAME=demo", "CONTROL_PLANE_REPLICAS=5"),
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			for _, o := range withIP(t, b).Now {
				data, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("---\n")
				got.Write(data)
			}
			golden(t, name+".golden.yaml", got.Bytes())
		})
	}
}

// golden compares with a file of testdata, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (go test -update writes it anew):\n%s", path, got)
	}
}

func TestRenderInTwoParts(t *testing.T) {
	b := planner(t, "")
	r, err := render.Manifests(b.cfg, b.sources, render.ManifestVariables(b.sources, "talos", "eu-central",
		render.Endpoint{}))
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(objects []*unstructured.Unstructured) string {
		var k []string
		for _, o := range objects {
			k = append(k, o.GetKind())
		}
		return strings.Join(k, " ")
	}
	if got := kinds(r.Now); got != "Cluster HetznerCluster HCloudMachineTemplate MachineHealthCheck" {
		t.Errorf("at once: %s", got)
	}
	whole := withIP(t, b).Now
	if got := kinds(whole); got != "Cluster HetznerCluster HCloudMachineTemplate TalosControlPlane MachineHealthCheck" {
		t.Errorf("with the address: %s", got)
	}
	if _, ok, _ := unstructured.NestedMap(find(t, r.Now, "Cluster").Object, "spec", "controlPlaneRef"); ok {
		t.Error("the Cluster names a control plane that is not there yet")
	}
	if capi.Text(find(t, whole, "Cluster"), "spec", "controlPlaneRef", "name") != "k8s-control-plane" {
		t.Error("the Cluster never gets its control plane")
	}
	if host, ok, _ := unstructured.NestedString(find(t, r.Now, "HetznerCluster").Object, "spec", "controlPlaneEndpoint",
		"host"); !ok || host != "" {
		t.Errorf("the endpoint's host is %q, present: %v; CAPH needs an empty one to fill", host, ok)
	}
}

func TestTemplateNameFollowsItsContent(t *testing.T) {
	one, again := withIP(t, planner(t, "")), withIP(t, planner(t, ""))
	if one.Template != again.Template || !regexp.MustCompile(`^k8s-control-plane-[0-9a-f]{5}$`).MatchString(one.Template) {
		t.Errorf("the name %q is not stable, now %q", one.Template, again.Template)
	}
	for _, kv := range []string{"SERVER_TYPE=cx43", "TALOS_VERSION=v1.13.10"} {
		other := withIP(t, planner(t, "", kv))
		if other.Template == one.Template {
			t.Errorf("%s keeps the template's name %s, whose spec is immutable", kv, one.Template)
		}
		if ref := capi.Text(find(t, other.Now, "TalosControlPlane"), "spec", "infrastructureTemplate",
			"name"); ref != other.Template {
			t.Errorf("the control plane refers to %s instead of %s", ref, other.Template)
		}
	}
	if other := withIP(t, planner(t, "", "KUBERNETES_VERSION=v1.35.3")); other.Template != one.Template {
		t.Error("a new Kubernetes version renames the template")
	}
}

func TestPeoplesFilesWin(t *testing.T) {
	dir := t.TempDir()
	own, err := manifests.Files.ReadFile(manifests.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	own = bytes.Replace(own, []byte("enableIPv6: false"), []byte("enableIPv6: true"), 1)
	own = append(own, "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra, namespace: default}\ndata: "+
		"{name: \"${CLUSTER_NAME}\"}\n"...)
	write(t, dir, "manifests/"+manifests.Cluster, string(own))
	write(t, dir, "bootstrap/"+bootstrap.Cilium().Values, "hubble: {enabled: false}")
	b := planner(t, dir)
	r := withIP(t, b)
	if r.Template == withIP(t, planner(t, "")).Template {
		t.Error("an edited template is applied under the old name")
	}
	if got := capi.Text(find(t, r.Now, "ConfigMap"), "data", "name"); got != "k8s" {
		t.Errorf("an added document got %q", got)
	}
	values, err := render.CiliumChart(b.cfg, b.sources).Values.Values(b.sources.Vars)
	if on, _, _ := unstructured.NestedBool(values, "hubble", "enabled"); err != nil || on {
		t.Errorf("Cilium's values are %v, %v", values, err)
	}
}

func write(t *testing.T, dir, name, data string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBadFilesAreFoundBeforeAnythingRuns(t *testing.T) {
	for name, data := range map[string]string{
		"manifests/cluster.yaml":              "kind: Cluster\nkind: Cluster",
		"manifests/machine-health-check.yaml": "apiVersion: v1\nkind: X\nmetadata: {name: \"${NOBODY_SETS_THIS}\"}",
		"manifests/clusterctl.yaml":           "providers: [",
		"bootstrap/cilium-values.yaml":        "a: 1\na: 2",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, name, data)
			_, err := New(config.Defaults(), platform.Tools{Overrides: dir, Management: &clustertest.Provider{}})
			if err == nil || !strings.Contains(err.Error(), filepath.Base(name)) {
				t.Errorf("the plan was made: %v", err)
			}
		})
	}
}

// TestDefaultsInTheFiles holds the defaults that the files carry for readers against the configuration's.
func TestDefaultsInTheFiles(t *testing.T) {
	defaults := render.VariablesOf(config.Defaults())
	defaults[render.NetworkZoneVariable] = "eu-central"
	defaults[render.ImageNameVariable] = config.Defaults().Image("amd64")
	s, err := render.Read(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range []render.Source{s.Cluster, s.HealthCheck, s.Clusterctl, s.Cilium, s.HcloudCCM, s.TalosCCM} {
		for _, m := range regexp.MustCompile(`\$\{([A-Z_]+):=([^}]*)\}`).FindAllStringSubmatch(string(f.Data), -1) {
			if m[1] == "NAME" || m[1] == render.LoadBalancerIPVariable {
				continue
			}
			seen++
			if defaults[m[1]] != m[2] {
				t.Errorf("%s says %s is %q by default, the configuration %q", f.Name, m[1], m[2], defaults[m[1]])
			}
		}
	}
	if seen < 20 {
		t.Errorf("found only %d defaults in the files", seen)
	}
}

// generated is a control plane configuration as CABPT makes it before the patches. Made once: its keys take seconds.
var generated = sync.OnceValues(func() ([]byte, error) {
	contract, err := machineconfig.ParseContractFromVersion(config.Defaults().TalosVersion)
	if err != nil {
		return nil, err
	}
	input, err := generate.NewInput("k8s", "https://192.0.2.10:6443",
		strings.TrimPrefix(config.Defaults().KubernetesVersion, "v"), generate.WithVersionContract(contract))
	if err != nil {
		return nil, err
	}
	c, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		return nil, err
	}
	return c.Bytes()
})

// machineConfig is what a control plane server gets: the configuration that CABPT generates with the rendered patches.
func machineConfig(t *testing.T, b *Set) machineconfig.Provider {
	t.Helper()
	raw, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	patches, _, err := unstructured.NestedStringSlice(find(t, withIP(t, b).Now, "TalosControlPlane").Object, "spec",
		"controlPlaneConfig", "controlplane", "strategicPatches")
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	var loaded []configpatcher.Patch
	for _, p := range patches {
		patch, err := configpatcher.LoadPatch([]byte(p))
		if err != nil {
			t.Fatalf("Talos does not take the patch: %v\n%s", err, p)
		}
		if _, ok := patch.(configpatcher.StrategicMergePatch); !ok {
			t.Fatalf("not a strategic merge patch:\n%s", p)
		}
		loaded = append(loaded, patch)
	}
	out, err := configpatcher.Apply(configpatcher.WithBytes(raw), loaded)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := out.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	c, err := configloader.NewFromBytes(patched)
	if err != nil {
		t.Fatalf("the patched configuration does not load: %v", err)
	}
	return c
}

// cloud is where the configuration is used, for Talos's own validation.
type cloud struct{}

func (cloud) String() string        { return "hcloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }

func TestMachineConfiguration(t *testing.T) {
	c := machineConfig(t, planner(t, ""))
	if warnings, err := c.Validate(cloud{}, validation.WithStrict()); err != nil {
		t.Errorf("Talos refuses it: %v (%v)", err, warnings)
	}
	m, k := c.RawV1Alpha1().MachineConfig, c.RawV1Alpha1().ClusterConfig
	check := func(what string, ok bool) {
		t.Helper()
		if !ok {
			t.Error(what)
		}
	}
	check("TLS through the load balancer on 50000 would fail", slices.Contains(m.MachineCertSANs, "192.0.2.10"))
	check("eth0 and eth1 have no DHCP", len(m.MachineNetwork.NetworkInterfaces) == 2 &&
		*m.MachineNetwork.NetworkInterfaces[0].DeviceDHCP && *m.MachineNetwork.NetworkInterfaces[1].DeviceDHCP)
	check("the kubelet's address is not bound to the network",
		slices.Equal(m.MachineKubelet.KubeletNodeIP.KubeletNodeIPValidSubnets, []string{"10.10.0.0/16"}))
	routes := m.MachineNetwork.NetworkInterfaces[0].DeviceRoutes
	check("the metadata is not reached by eth0", m.MachineNetwork.NetworkInterfaces[0].DeviceInterface == "eth0" &&
		len(routes) == 1 && routes[0].Network() == "169.254.169.254/32" && routes[0].Gateway() == "172.31.1.1" &&
		routes[0].Metric() < 1024) // that of routes from DHCP
	args := c.Machine().Kubelet().ExtraArgs()
	check("the kubelet has no external cloud provider", slices.Equal(args["cloud-provider"], []string{"external"}))
	check("the kubelet's certificate does not rotate", slices.Equal(args["rotate-server-certificates"], []string{"true"}))
	features := c.Machine().Features()
	check("no host DNS", features.HostDNS().Enabled() && features.HostDNS().ForwardKubeDNSToHost() &&
		features.HostDNS().ResolveMemberNames())
	access := features.KubernetesTalosAPIAccess()
	check("no Talos API for kube-system", access.Enabled() && slices.Equal(access.AllowedRoles(), []string{"os:reader"}) &&
		slices.Equal(access.AllowedKubernetesNamespaces(), []string{"kube-system"}))
	check("no KubePrism on 7445", features.KubePrism().Enabled() && features.KubePrism().Port() == 7445)
	_, excluded := c.Machine().NodeLabels()[situation.ExcludeFromBalancer]
	check("control plane nodes are excluded from load balancers", !excluded)
	check("nothing can run on the control plane", c.Cluster().ScheduleOnControlPlanes())
	check("another CNI", c.Cluster().Network().CNI().Name() == "none")
	check("kube-proxy runs", !c.Cluster().Proxy().Enabled())
	check("Pod ranges "+strings.Join(c.Cluster().Network().PodCIDRs(), ","),
		slices.Equal(c.Cluster().Network().PodCIDRs(), []string{"10.10.128.0/17"}))
	check("Service ranges "+strings.Join(c.Cluster().Network().ServiceCIDRs(), ","),
		slices.Equal(c.Cluster().Network().ServiceCIDRs(), []string{"10.10.96.0/20"}))
	check("etcd is not bound to the servers' subnet",
		slices.Equal(c.Cluster().Etcd().AdvertisedSubnets(), []string{"10.10.64.0/25"}))
	check("no external cloud provider", c.Cluster().ExternalCloudProvider().Enabled())
	if k.APIServerConfig != nil {
		_, configured := k.APIServerConfig.ExtraArgsConfig["oidc-issuer-url"]
		check("an OpenID Connect issuer that is not configured", !configured)
	}
	check("a hostname of its own, which is not the server's", m.MachineNetwork.NetworkHostname == "")
}

func TestMachineConfigurationWithIssuer(t *testing.T) {
	c := machineConfig(t, planner(t, "", "OIDC_ISSUER_URL=https://auth.example.com/", "OIDC_CLIENT_ID=kubernetes"))
	args := c.Cluster().APIServer().ExtraArgs()
	for name, want := range map[string]string{"oidc-issuer-url": "https://auth.example.com/",
		"oidc-client-id": "kubernetes"} {
		if !slices.Equal(args[name], []string{want}) {
			t.Errorf("%s is %v", name, args[name])
		}
	}
}
