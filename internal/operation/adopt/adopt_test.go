package adopt

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

func parse(t *testing.T, text string) (v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// What a manifest has is kept where it comes to the live value; everything else is the live value.
func TestAdapted(t *testing.T) {
	written := parse(t, `
version: ${KUBERNETES_VERSION:=v1.35.4}
replicas: ${CONTROL_PLANE_REPLICAS:=3}
host: "${LOAD_BALANCER_IP:=}"
regions: ["${LOCATION:=nbg1}"]
ref: {apiVersion: example.com/v1, kind: Thing, name: "${CLUSTER_NAME:=k8s}"}
infrastructureTemplate: {kind: HCloudMachineTemplate, name: "${CLUSTER_NAME:=k8s}-control-plane"}
`)
	filled := parse(t, `
version: v1.33.4
replicas: 3
host: 203.0.113.1
regions: [nbg1]
ref: {apiVersion: example.com/v1, kind: Thing, name: shop}
infrastructureTemplate: {kind: HCloudMachineTemplate, name: shop-control-plane}
`)
	live := parse(t, `
version: v1.33.4
replicas: 5
host: 203.0.113.1
regions: [nbg1, fsn1]
ref: {apiVersion: example.com/v2, kind: Thing, name: shop, namespace: default}
infrastructureTemplate: {kind: HCloudMachineTemplate, name: servers-of-march, namespace: default}
patches: ["text: ${NOT_A_VARIABLE}"]
empty: {}
`)
	want := parse(t, `
version: ${KUBERNETES_VERSION:=v1.35.4}
replicas: 5
host: "${LOAD_BALANCER_IP:=}"
regions: [nbg1, fsn1]
ref: {apiVersion: example.com/v1, kind: Thing, name: "${CLUSTER_NAME:=k8s}"}
infrastructureTemplate: {kind: HCloudMachineTemplate, name: "${CLUSTER_NAME:=k8s}-control-plane"}
patches: ["text: $${NOT_A_VARIABLE}"]
`)
	if is := withoutEmpty(adapted(live, written, filled)); !reflect.DeepEqual(is, want) {
		t.Errorf("it is\n%v\nand should be\n%v", is, want)
	}
}

// Merged over the built-in values, what is written comes to the values of the release.
func TestOverlay(t *testing.T) {
	for name, c := range map[string]struct{ base, live, want string }{
		"the same":       {"a: {b: 1}", "a: {b: 1}", "{}"},
		"another value":  {"a: {b: 1, c: 2}", "a: {b: 1, c: 3}", "a: {c: 3}"},
		"one more":       {"a: {b: 1}", "{a: {b: 1}, d: [1, 2]}", "d: [1, 2]"},
		"one less":       {"{a: {b: 1, c: 2}, d: 1}", "a: {b: 1}", "{a: {c: null}, d: null}"},
		"other kind":     {"a: {b: 1}", "a: text", "a: text"},
		"another list":   {"a: [1, 2]", "a: [2]", "a: [2]"},
		"no values":      {"a: 1", "{}", "a: null"},
		"a map for null": {"{}", "a: {b: {c: 1}}", "a: {b: {c: 1}}"},
	} {
		of := func(text string) map[string]any { return parse(t, text).(map[string]any) }
		over := overlay(of(c.base), of(c.live))
		if !reflect.DeepEqual(over, of(c.want)) {
			t.Errorf("%s: it is %v", name, over)
		}
		if is := render.MergeValues(of(c.base), over); !reflect.DeepEqual(is, of(c.live)) {
			t.Errorf("%s: merged it is %v", name, is)
		}
	}
}

// A cluster that exists keeps its versions and ranges, whatever a later release has by default.
func TestConfigurationText(t *testing.T) {
	given := config.Defaults()
	given.ManagementKubeconfig, given.ProviderRepository = "/home/you/mgmt.kubeconfig", "/srv/providers"
	cfg := given
	cfg.ClusterName, cfg.HCloudCCMRelease, cfg.ControlPlaneReplicas = "shop", "hccm", 5
	for managesItself, has := range map[bool]bool{true: false, false: true} {
		text, err := configurationText(cfg, given, managesItself)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"clusterName: shop\n", "hcloudCcmRelease: hccm\n", "controlPlaneReplicas: 5\n",
			"kubernetesVersion: " + given.KubernetesVersion + "\n", "podCidr: 10.10.128.0/17\n"} {
			if !strings.Contains(string(text), line) {
				t.Errorf("it lacks %q:\n%s", line, text)
			}
		}
		if is := strings.Contains(string(text), "managementKubeconfig: /home/you/mgmt.kubeconfig\n"); is != has {
			t.Errorf("manages itself %v: names the management cluster: %v", managesItself, is)
		}
		if strings.Contains(string(text), "providerRepository") || strings.Contains(string(text), "ciliumRelease") {
			t.Errorf("it has what the cluster does not tell:\n%s", text)
		}
	}
	// The state folder leads to a management cluster that Slipway has created.
	given.ManagementKubeconfig, cfg.ManagementKubeconfig = "", ""
	if text, err := configurationText(cfg, given, false); err != nil || strings.Contains(string(text), "management") {
		t.Errorf("%v\n%s", err, text)
	}
}
