package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// templateWith is a TalosConfigTemplate for workers with one patch.
func templateWith(patch string) string {
	return "---\napiVersion: bootstrap.cluster.x-k8s.io/v1alpha3\nkind: TalosConfigTemplate\nmetadata:\n  name: " +
		"workers\n  namespace: default\n" +
		"spec:\n  template:\n    spec:\n      generateType: worker\n      talosVersion: v1.12.2\n      strategicPatches:\n " +
		"       - |\n" +
		"          " + strings.ReplaceAll(strings.TrimSpace(patch), "\n", "\n          ") + "\n"
}

// What can be known without a request is found before a run, with its place; the doctor says the same.
func TestCheckFiles(t *testing.T) {
	manifest := func(old, now string) func(string) string { return clustertest.Replacing(old, now) }
	appended := func(more string) func(string) string { return func(s string) string { return s + more } }
	for name, tc := range map[string]struct {
		edit func(string) string
		line string // the text of the line that is named
		says string
	}{
		"an unknown key": {manifest("kubePrism:", "kubePrismm:"), "              kubePrismm:",
			"TalosControlPlane k8s-control-plane: strategicPatches[5]: unknown key machine.features.kubePrismm:"},
		"a value of a wrong type": {manifest("            certSANs:\n              - ${LOAD_BALANCER_IP}\n",
			"            certSANs: planted-secret\n"), "            certSANs: planted-secret", "strategicPatches[3]: "},
		"no YAML": {manifest("disabled: true", "disabled: [true"), "", "strategicPatches[8]: "},
		"configPatches": {manifest("      strategicPatches:\n", "      configPatches:\n        - op: remove\n          "+
			"path: /machine\n      strategicPatches:\n"), "      configPatches:", "JSON patches"},
		"another type": {manifest("generateType: controlplane", "generateType: init"), "      generateType: init",
			"generateType is \"init\""},
		"kube-proxy on": {manifest("            proxy:\n              disabled: true\n", ""), "      strategicPatches:",
			"cluster.proxy.disabled is missing"},
		"an even number": {manifest("replicas: ${CONTROL_PLANE_REPLICAS:=3}", "replicas: 2"), "  replicas: 2 # odd; the " +
			"provider does not check", "2 replicas"},
		"a version that is not served": {manifest("apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\n",
			"apiVersion: cluster.x-k8s.io/v1beta3\nkind: Cluster\n"), "apiVersion: cluster.x-k8s.io/v1beta3",
			"apiVersion is cluster.x-k8s.io/v1beta3, which neither"},
		"a reference to one": {manifest("    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\n    kind: HetznerCluster",
			"    apiVersion: infrastructure.cluster.x-k8s.io/v1beta2\n    kind: HetznerCluster"),
			"    apiVersion: infrastructure.cluster.x-k8s.io/v1beta2",
			"spec.infrastructureRef.apiVersion is infrastructure.cluster.x-k8s.io/v1beta2"},
		"workers with a typing error": {appended(templateWith("machine:\n  kubelet:\n    extraArg:\n      v: planted-secret\n")), "              extraArg:",
			"TalosConfigTemplate workers: strategicPatches[0]: unknown key machine.kubelet.extraArg:"},
		"workers that are none": {appended(strings.Replace(templateWith("machine: {}"), "generateType: worker",
			"generateType: controlplane", 1)), "      generateType: controlplane", "TalosConfigTemplate workers: generateType"},
		"workers with a JSON patch": {appended(strings.Replace(templateWith("machine: {}"), "strategicPatches:",
			"configPatches:", 1)), "      configPatches:", "TalosConfigTemplate workers: configPatches"},
		"workers that are right": {appended(templateWith("machine:\n  kubelet:\n    extraArgs:\n      " +
			"rotate-server-certificates: \"true\"\n")), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			clustertest.Edit(t, dir, "manifests/cluster.yaml", tc.edit)
			sources := clustertest.Sources(t, config.Defaults(), dir)
			found, err := checks.Manifests(config.Defaults(), sources)
			if err != nil {
				t.Fatal(err)
			}
			if tc.says == "" {
				if len(found) > 0 {
					t.Errorf("it finds %v", found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0].Error(), tc.says) || found[0].Hint == "" {
				t.Fatalf("it finds %+v, not %q", found, tc.says)
			}
			if strings.Contains(found[0].Error(), "planted") {
				t.Errorf("it tells a value: %v", found[0])
			}
			if tc.line != "" {
				if at := fmt.Sprintf("%s/manifests/cluster.yaml:%d: ", dir,
					lineOf(t, dir+"/manifests/cluster.yaml", tc.line)); !strings.HasPrefix(found[0].Error(), at) {
					t.Errorf("%v does not begin with %s", found[0], at)
				}
			}
			if f := New(config.Defaults(), platform.Tools{Management: &clustertest.Provider{}}.WithDefaults(),
				sources).checkNamed(t, found[0].Check); f.Verdict != Failed ||
				!strings.Contains(f.Reason, strings.TrimSuffix(tc.says, ":")) {
				t.Errorf("the doctor says %+v", f)
			}
		})
	}
}

// checkNamed runs one check.
func (d *Doctor) checkNamed(t *testing.T, name string) Finding {
	t.Helper()
	for _, c := range d.checks() {
		if c.name == name {
			return c.examine(t.Context())
		}
	}
	t.Fatalf("there is no check %s", name)
	return Finding{}
}

// lineOf is the number of the first line that is this text, from the control plane on.
func lineOf(t *testing.T, file, text string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for i, line := range strings.Split(string(data), "\n") {
		if line == text {
			last = i + 1
		}
	}
	if last == 0 {
		t.Fatalf("there is no line %q", text)
	}
	return last
}

// The patch for an OpenID Connect issuer has a file of its own.
func TestCheckFilesNamesTheOIDCPatch(t *testing.T) {
	dir := t.TempDir()
	clustertest.Edit(t, dir, "manifests/oidc-patch.yaml", clustertest.Replacing("    extraArgs:", "    extraArg:"))
	cfg := config.Defaults()
	cfg.OIDCIssuerURL, cfg.OIDCClientID = "https://auth.example.com", "kubernetes"
	found, err := checks.Manifests(cfg, clustertest.Sources(t, cfg, dir))
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Error(), "manifests/oidc-patch.yaml:") ||
		!strings.Contains(found[0].Error(), "cluster.apiServer.extraArg") {
		t.Errorf("it finds %v, %v", found, err)
	}
}

// Schemas that are on this machine refuse a run; those that are not are left to the doctor.
func TestCheckFilesBySchemas(t *testing.T) {
	c := newClinic(t)
	clustertest.Edit(t, c.overrides, "manifests/cluster.yaml",
		clustertest.Replacing("    algorithm: round_robin\n", "    algorithms: round_robin\n"))
	for _, local := range []bool{true, false} {
		cfg := c.cfg
		if !local {
			cfg.ProviderRepository = ""
		}
		found, err := checks.Manifests(cfg, clustertest.Sources(t, cfg, c.overrides))
		if err != nil {
			t.Fatal(err)
		}
		if !local {
			if len(found) > 0 {
				t.Errorf("without schemas it finds %v", found)
			}
			continue
		}
		at := fmt.Sprintf("cluster.yaml:%d: HetznerCluster k8s: ",
			lineOf(t, c.overrides+"/manifests/cluster.yaml", "    algorithms: round_robin"))
		if len(found) != 1 || !strings.Contains(found[0].Error(), at) ||
			!strings.Contains(found[0].Error(), "unknown field spec.controlPlaneLoadBalancer.algorithms") {
			t.Errorf("it finds %v, not at %s", found, at)
		}
	}
}
