package repository

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/talosccm"
)

// typed decodes an object, refusing fields that its type does not have.
func typed[T any](t *testing.T, object unstructured.Unstructured) T {
	t.Helper()
	var decoded T
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &decoded, true)
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return decoded
}

// pods are the Pod templates of the workloads among objects, by name.
func pods(t *testing.T, objects []unstructured.Unstructured) map[string]corev1.PodSpec {
	t.Helper()
	pods := map[string]corev1.PodSpec{}
	for _, object := range objects {
		switch object.GetKind() {
		case "Deployment":
			pods[object.GetName()] = typed[appsv1.Deployment](t, object).Spec.Template.Spec
		case "DaemonSet":
			pods[object.GetName()] = typed[appsv1.DaemonSet](t, object).Spec.Template.Spec
		}
	}
	return pods
}

func mustRender(t *testing.T, chart, release, values string) []unstructured.Unstructured {
	t.Helper()
	objects, err := render(t, chart, release, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestCiliumShowsItsValues(t *testing.T) {
	const values = `
ipam: {mode: kubernetes}
kubeProxyReplacement: true
k8sServiceHost: localhost
k8sServicePort: 7445
cgroup: {autoMount: {enabled: false}, hostRoot: /sys/fs/cgroup}
securityContext:
  capabilities: {ciliumAgent: [NET_ADMIN], cleanCiliumState: [SYS_ADMIN]}
bpf: {preallocateMaps: true, hostLegacyRouting: true}
socketLB: {enabled: true, hostNamespaceOnly: true}
hubble: {relay: {enabled: true}, ui: {enabled: true}}
extraConfig: {unknown-to-the-chart: "1"}
somethingElse: {ignored: true}
`
	objects := mustRender(t, "cilium", "cilium", values)
	settings := typed[corev1.ConfigMap](t, find(t, objects, "ConfigMap", "cilium-config")).Data
	for key, want := range map[string]string{
		"ipam":                       "kubernetes",
		"kube-proxy-replacement":     "true",
		"preallocate-bpf-maps":       "true",
		"enable-host-legacy-routing": "true",
		"bpf-lb-sock":                "true",
		"bpf-lb-sock-hostns-only":    "true",
		"cgroup-root":                "/sys/fs/cgroup",
		"enable-hubble":              "true",
		"unknown-to-the-chart":       "1",
	} {
		if settings[key] != want {
			t.Errorf("cilium-config %s is %q, want %q", key, settings[key], want)
		}
	}
	workloads := pods(t, objects)
	for _, name := range []string{"cilium", "cilium-operator", "hubble-relay", "hubble-ui"} {
		if _, ok := workloads[name]; !ok {
			t.Errorf("no pods of %s", name)
		}
	}
	agent := workloads["cilium"]
	if !agent.HostNetwork || !slices.ContainsFunc(agent.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == "/etc/cni/net.d"
	}) {
		t.Error("the agent needs the host's network and /etc/cni/net.d: that is how the lab's kubelet knows it")
	}
	if !slices.Equal(agent.Containers[0].SecurityContext.Capabilities.Add, []corev1.Capability{"NET_ADMIN"}) {
		t.Errorf("the agent's capabilities are %v", agent.Containers[0].SecurityContext.Capabilities.Add)
	}
	if len(agent.InitContainers) != 1 || agent.InitContainers[0].Name != "clean-cilium-state" {
		t.Errorf("init containers %v, want no mount-cgroup", agent.InitContainers)
	}
	env := agent.Containers[0].Env
	if !slices.Contains(env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "7445"}) {
		t.Errorf("the agent's environment %v does not name the API server", env)
	}
}

func TestCiliumDefaults(t *testing.T) {
	objects := mustRender(t, "cilium", "cilium", "")
	settings := typed[corev1.ConfigMap](t, find(t, objects, "ConfigMap", "cilium-config")).Data
	if settings["kube-proxy-replacement"] != "false" || settings["ipam"] != "cluster-pool" ||
		settings["preallocate-bpf-maps"] != "false" {
		t.Errorf("settings %v", settings)
	}
	for _, key := range []string{"enable-host-legacy-routing", "bpf-lb-sock-hostns-only"} {
		if value, ok := settings[key]; ok {
			t.Errorf("%s is %q though it was not set", key, value)
		}
	}
	replicas := typed[appsv1.Deployment](t, find(t, objects, "Deployment", "cilium-operator")).Spec.Replicas
	if *replicas != 2 {
		t.Errorf("%d operators, want 2", *replicas)
	}
	if workloads := pods(t, objects); len(workloads) != 2 {
		t.Errorf("workloads %v, want agent and operator only", workloads)
	}
	if _, err := render(t, "cilium", "cilium", "hubble: {ui: {enabled: true}}"); err == nil ||
		!strings.Contains(err.Error(), "hubble.relay.enabled") {
		t.Errorf("Hubble's UI without its relay: %v", err)
	}
}

func TestHCloudCCM(t *testing.T) {
	const chart = "hcloud-cloud-controller-manager"
	objects := mustRender(t, chart, "any", `
networking: {enabled: true, clusterCIDR: 127.64.128.0/17}
env: {HCLOUD_NETWORK_ROUTES_ENABLED: {value: "false"}}
additionalTolerations: [{key: example, operator: Exists}]
`)
	pod := pods(t, objects)[chart]
	container := pod.Containers[0]
	for _, arg := range []string{"--cloud-provider=hcloud", "--cluster-cidr=127.64.128.0/17", "--allocate-node-cidrs=true",
		"--leader-elect=false"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("arguments %v lack %s", container.Args, arg)
		}
	}
	for name, key := range map[string]string{"HCLOUD_TOKEN": "token", "HCLOUD_NETWORK": "network"} {
		if !slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool {
			return e.Name == name && e.ValueFrom.SecretKeyRef.Name == "hcloud" && e.ValueFrom.SecretKeyRef.Key == key
		}) {
			t.Errorf("%s does not come from key %s of Secret hcloud", name, key)
		}
	}
	if !slices.Contains(container.Env, corev1.EnvVar{Name: "HCLOUD_NETWORK_ROUTES_ENABLED", Value: "false"}) {
		t.Errorf("environment %v", container.Env)
	}
	tolerated := func(key string, effect corev1.TaintEffect) bool {
		return slices.ContainsFunc(pod.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.ToleratesTaint(&corev1.Taint{Key: key, Effect: effect, Value: taintValue[key]})
		})
	}
	for _, key := range []string{"node.cloudprovider.kubernetes.io/uninitialized", "node-role.kubernetes.io/control-plane",
		"example"} {
		if !tolerated(key, corev1.TaintEffectNoSchedule) {
			t.Errorf("%s:NoSchedule is not tolerated", key)
		}
	}
	if tolerated("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule) {
		t.Error("not-ready:NoSchedule is tolerated; the original waits for a network")
	}
	if !pod.HostNetwork {
		t.Error("no host network though the network is enabled")
	}

	plain := pods(t, mustRender(t, chart, "any", "kind: DaemonSet"))[chart]
	if plain.HostNetwork || slices.ContainsFunc(plain.Containers[0].Env,
		func(e corev1.EnvVar) bool { return e.Name == "HCLOUD_NETWORK" }) {
		t.Error("network settings though networking.enabled is false")
	}
	if _, err := render(t, chart, "any", "kind: Job"); err == nil {
		t.Error("kind Job was accepted")
	}
}

// taintValue of the taints that have one.
var taintValue = map[string]string{"node.cloudprovider.kubernetes.io/uninitialized": "true"}

// A cluster of one node has the port of the Hetzner CCM's Pods once: with this project's values the old one goes first.
func TestHCloudCCMOnOneNode(t *testing.T) {
	values, err := os.ReadFile("../../bootstrap/hcloud-ccm-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const name = "hcloud-cloud-controller-manager"
	is := typed[appsv1.Deployment](t, find(t, mustRender(t, name, name, string(values)), "Deployment", name))
	if r := is.Spec.Strategy.RollingUpdate; !is.Spec.Template.Spec.HostNetwork || r == nil || r.MaxSurge.IntValue() != 0 ||
		r.MaxUnavailable.IntValue() != 1 {
		t.Errorf("it is replaced by %+v", is.Spec.Strategy)
	}
}

func TestTalosCCM(t *testing.T) {
	const chart = "talos-cloud-controller-manager"
	objects := mustRender(t, chart, chart, `
enabledControllers: [node-csr-approval]
daemonSet: {enabled: true}
nodeSelector: {node-role.kubernetes.io/control-plane: ""}
transformations: [{name: web, labels: {a: b}}]
`)
	find(t, objects, "DaemonSet", chart)
	pod := pods(t, objects)[chart]
	if !slices.Contains(pod.Containers[0].Args, "--controllers=node-csr-approval") {
		t.Errorf("arguments %v", pod.Containers[0].Args)
	}
	if _, ok := pod.NodeSelector["node-role.kubernetes.io/control-plane"]; !ok || !pod.HostNetwork {
		t.Errorf("node selector %v, host network %v", pod.NodeSelector, pod.HostNetwork)
	}
	var config struct {
		Transformations []struct{ Name string }
	}
	data := typed[corev1.ConfigMap](t, find(t, objects, "ConfigMap", chart)).Data["ccm-config.yaml"]
	if err := yaml.Unmarshal([]byte(data), &config); err != nil || len(config.Transformations) != 1 ||
		config.Transformations[0].Name != "web" {
		t.Errorf("configuration %q: %v", data, err)
	}
	// Talos names the Secret as the object that asks for it.
	const credentials = chart + "-talos-secrets"
	roles, _, err := unstructured.NestedStringSlice(find(t, objects, "ServiceAccount", credentials).Object, "spec",
		"roles")
	if err != nil || !slices.Equal(roles, []string{"os:reader"}) {
		t.Errorf("roles in Talos %v, %v", roles, err)
	}
	if !slices.ContainsFunc(pod.Volumes,
		func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == credentials }) {
		t.Errorf("volumes %v lack Secret %s", pod.Volumes, credentials)
	}
	granted := typed[rbacv1.ClusterRole](t, find(t, objects, "ClusterRole", "system:"+chart)).Rules
	if missing := uncovered(talosccm.Rules(), granted); len(missing) > 0 {
		t.Errorf("the role lacks %v", missing)
	}
	find(t, mustRender(t, chart, "ccm", ""), "Deployment", "ccm-"+chart)
}

// TestImagesAreMapped: what runs in the lab as a process is known to its
// kubelet, under the name that the manifests and charts give it.
func TestImagesAreMapped(t *testing.T) {
	programs := kubelet.DefaultPrograms(nil)
	images := []string{"ghcr.io/syself/caph:" + caphVersion,
		"quay.io/jetstack/cert-manager-controller:" + DefaultCertManagerVersion}
	for _, p := range providers {
		images = append(images, p.image+":v1.0.0")
	}
	for _, chart := range []string{"hcloud-cloud-controller-manager", "talos-cloud-controller-manager"} {
		for _, pod := range pods(t, mustRender(t, chart, chart, "")) {
			images = append(images, pod.Containers[0].Image)
		}
	}
	for _, image := range images {
		if _, ok := kubelet.Match(programs, image); !ok {
			t.Errorf("no program runs for %s", image)
		}
	}
	for _, pod := range pods(t, mustRender(t, "cilium", "cilium", "")) {
		if program, ok := kubelet.Match(programs, pod.Containers[0].Image); ok {
			t.Errorf("%s is run by %s, not simulated", pod.Containers[0].Image, program.Exec)
		}
	}
}

// unpacked are the files of a chart's archive, by name.
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for files := tar.NewReader(compressed); ; {
		header, err := files.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		all[header.Name] = string(content)
	}
}

func TestChartArchives(t *testing.T) {
	for _, source := range chartSources {
		further := []string{"99.1.2", "99.2.0"}
		versions, err := source.versions(nil, further)
		if err != nil || len(versions) != 1+len(further) {
			t.Fatalf("%s is offered as %d versions, %v", source.name, len(versions), err)
		}
		for i, p := range versions {
			files := unpacked(t, p.archive)
			for _, name := range []string{"Chart.yaml", "values.yaml", "templates/_helpers.tpl"} {
				if files[source.name+"/"+name] == "" {
					t.Errorf("the archive of %s lacks %s", source.name, name)
				}
			}
			version := p.text("version")
			if i > 0 && version != further[i-1] ||
				!strings.Contains(files[source.name+"/Chart.yaml"], "\nversion: "+version+"\n") {
				t.Errorf("%s %s has the metadata\n%s", source.name, version, files[source.name+"/Chart.yaml"])
			}
			if p.text("name") != source.name || !strings.Contains(p.text("description"), "Stand-in") {
				t.Errorf("the metadata of %s does not say that it is a stand-in: %v", source.name, p.metadata)
			}
		}
	}
}
