package repository

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"
)

// clusterctlConfig is clusterctl's configuration for a repository.
func clusterctlConfig(t *testing.T, contents Contents) config.Client {
	t.Helper()
	var listed []map[string]string
	for _, p := range []struct{ name, kind, label string }{
		{"cluster-api", "CoreProvider", "cluster-api"},
		{"talos", "BootstrapProvider", "bootstrap-talos"},
		{"talos", "ControlPlaneProvider", "control-plane-talos"},
		{"hetzner", "InfrastructureProvider", "infrastructure-hetzner"},
	} {
		listed = append(listed, map[string]string{"name": p.name, "type": p.kind, "url": contents.Components[p.label]})
	}
	providers, err := yaml.Marshal(listed)
	if err != nil {
		t.Fatal(err)
	}
	memory := config.NewMemoryReader()
	if err := memory.Init(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	memory.Set("providers", string(providers))
	memory.Set("cert-manager", "url: "+contents.CertManager+"\nversion: "+contents.CertManagerVersion+"\n")
	client, err := config.New(t.Context(), "", config.InjectReader(memory))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// released is what each provider's components have to say, by manifest label.
var released = map[string]struct{ key, namespace, image string }{
	"cluster-api":            {"CAPI", "capi-system", "registry.k8s.io/cluster-api/cluster-api-controller"},
	"bootstrap-talos":        {"CABPT", "cabpt-system", "ghcr.io/siderolabs/cluster-api-talos-controller"},
	"control-plane-talos":    {"CACPPT", "cacppt-system", "ghcr.io/siderolabs/cluster-api-control-plane-talos-controller"},
	"infrastructure-hetzner": {"CAPH", "caph-system", "ghcr.io/syself/caph"},
}

// clusterctlComponents reads every provider as "clusterctl init" does: fetch,
// expand variables, alter, check the contract.
func clusterctlComponents(t *testing.T, contents Contents) map[string]clusterctl.Components {
	t.Helper()
	client := clusterctlConfig(t, contents)
	listed, err := client.Providers().List()
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]clusterctl.Components{}
	for _, provider := range listed {
		label := provider.ManifestLabel()
		if contents.Components[label] != provider.URL() {
			continue // one of clusterctl's own list
		}
		version := contents.Versions[released[label].key]
		repository, err := clusterctl.New(t.Context(), provider, client)
		if err != nil {
			t.Fatalf("%s: %v", label, err)
		}
		if repository.DefaultVersion() != version {
			t.Errorf("%s: default version %s, want %s", label, repository.DefaultVersion(), version)
		}
		metadata, err := repository.Metadata(version).Get(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", label, err)
		}
		if series := metadata.ReleaseSeries; !slices.ContainsFunc(series, func(s clusterctlv1.ReleaseSeries) bool {
			return strings.HasPrefix(version, fmt.Sprintf("v%d.%d.", s.Major, s.Minor)) && s.Contract == "v1beta1"
		}) {
			t.Errorf("%s: no series of %s with contract v1beta1 among %v", label, version, series)
		}
		read[label], err = repository.Components().Get(t.Context(), clusterctl.ComponentsOptions{Version: version})
		if err != nil {
			t.Fatalf("%s: %v", label, err)
		}
	}
	if len(read) != len(released) {
		t.Fatalf("clusterctl reads %d of %d providers", len(read), len(released))
	}
	return read
}

// TestClusterctlReadsEveryCAPH: clusterctl finds each version on offer, with the image of that version.
func TestClusterctlReadsEveryCAPH(t *testing.T) {
	contents := write(t, t.TempDir())
	client := clusterctlConfig(t, contents)
	provider, err := client.Providers().Get("hetzner", clusterctlv1.InfrastructureProviderType)
	if err != nil {
		t.Fatal(err)
	}
	repository, err := clusterctl.New(t.Context(), provider, client)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range contents.Offers["CAPH"] {
		components, err := repository.Components().Get(t.Context(), clusterctl.ComponentsOptions{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		if images := components.Images(); len(images) != 1 || images[0] != "ghcr.io/syself/caph:"+version {
			t.Errorf("%s has the images %v", version, images)
		}
	}
	if len(contents.Offers["CAPH"]) < 2 {
		t.Errorf("only %v is on offer", contents.Offers["CAPH"])
	}
}

func TestClusterctlReadsTheProviders(t *testing.T) {
	contents := write(t, t.TempDir())
	for label, components := range clusterctlComponents(t, contents) {
		want := released[label]
		if components.TargetNamespace() != want.namespace {
			t.Errorf("%s: namespace %s, want %s", label, components.TargetNamespace(), want.namespace)
		}
		image := want.image + ":" + contents.Versions[want.key]
		if images := components.Images(); len(images) != 1 || images[0] != image {
			t.Errorf("%s: images %v, want %s", label, images, image)
		}
		checkProvider(t, label, components.Objs())
	}
}

// checkProvider asserts what every provider's components have in common.
func checkProvider(t *testing.T, label string, objects []unstructured.Unstructured) {
	t.Helper()
	count := map[string]int{}
	for _, object := range objects {
		count[object.GetKind()]++
		id := label + ": " + object.GetKind() + " " + object.GetName()
		labels := object.GetLabels()
		if labels["cluster.x-k8s.io/provider"] != label {
			t.Errorf("%s: label cluster.x-k8s.io/provider is %q", id, labels["cluster.x-k8s.io/provider"])
		}
		if text, err := yaml.Marshal(object.Object); err != nil || strings.Contains(string(text), "${") ||
			strings.Contains(string(text), "$(") {
			t.Errorf("%s: a variable is left (%v)", id, err)
		}
		switch object.GetKind() {
		case "CustomResourceDefinition":
			group := strings.SplitN(object.GetName(), ".", 2)[1]
			// Not a contract's: addresses and extensions have none to fulfil.
			if !strings.HasPrefix(group, "ipam.") && !strings.HasPrefix(group, "runtime.") && label != "cluster-api" &&
				labels["cluster.x-k8s.io/v1beta1"] == "" {
				t.Errorf("%s: no label cluster.x-k8s.io/v1beta1", id)
			}
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if object.GetAnnotations()["cert-manager.io/inject-ca-from"] == "" {
				t.Errorf("%s: no authority to be injected", id)
			}
		case "Deployment":
			checkManager(t, id, label, object)
		}
	}
	for _, kind := range []string{"Namespace", "Deployment", "Service", "Issuer", "Certificate",
		"ValidatingWebhookConfiguration", "ClusterRole"} {
		if count[kind] == 0 {
			t.Errorf("%s: no %s", label, kind)
		}
	}
	if want := map[string]int{"cluster-api": 13, "bootstrap-talos": 2, "control-plane-talos": 1,
		"infrastructure-hetzner": 5}[label]; count["CustomResourceDefinition"] != want {
		t.Errorf("%s: %d CRDs, want %d", label, count["CustomResourceDefinition"], want)
	}
}

// checkManager asserts what the lab's image mapping relies on: one container,
// probes, the webhook's certificate, and the flags that matter.
func checkManager(t *testing.T, id, label string, object unstructured.Unstructured) {
	t.Helper()
	var deployment appsv1.Deployment
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &deployment, true)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%s: %d containers", id, len(pod.Containers))
	}
	container := pod.Containers[0]
	if container.ReadinessProbe == nil || container.ReadinessProbe.HTTPGet == nil ||
		container.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("%s: readiness probe %v", id, container.ReadinessProbe)
	}
	for _, port := range []int32{9440, 9443} {
		if !slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) {
			t.Errorf("%s: no port %d", id, port)
		}
	}
	if len(container.VolumeMounts) != 1 || container.VolumeMounts[0].MountPath != "/tmp/k8s-webhook-server/serving-certs" {
		t.Errorf("%s: mounts %v, want the webhook's certificate", id, container.VolumeMounts)
	}
	wantArgs := map[string][]string{
		// Without the gate it watches what its role does not let it.
		"bootstrap-talos":        {"--enable-leader-election", "--feature-gates=MachinePool=false"},
		"control-plane-talos":    {"--enable-leader-election"},
		"cluster-api":            {"--leader-elect"},
		"infrastructure-hetzner": {"--leader-elect=true"},
	}[label]
	for _, arg := range wantArgs {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("%s: arguments %v lack %s", id, container.Args, arg)
		}
	}
}

// TestManifestsKeepClusterctlVariables: clusterctl expands them, with what the
// user configured, not the build.
func TestManifestsKeepClusterctlVariables(t *testing.T) {
	contents := write(t, t.TempDir())
	for label, variable := range map[string]string{
		"cluster-api":         "ClusterTopology=${CLUSTER_TOPOLOGY:=false}",
		"bootstrap-talos":     "MachinePool=${EXP_MACHINE_POOL:=false}",
		"control-plane-talos": "${CAPI_DIAGNOSTICS_ADDRESS:=:8443}",
	} {
		content, err := os.ReadFile(contents.Components[label])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), variable) {
			t.Errorf("%s has no %s", label, variable)
		}
	}
}

// TestClusterctlReadsCertManager goes the way of clusterctl's cert-manager
// client, which takes it for a provider of that name and no type.
func TestClusterctlReadsCertManager(t *testing.T) {
	contents := write(t, t.TempDir())
	client := clusterctlConfig(t, contents)
	settings, err := client.CertManager().Get()
	if err != nil {
		t.Fatal(err)
	}
	repository, err := clusterctl.New(t.Context(), config.NewProvider("cert-manager", settings.URL(), ""), client)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := repository.Components().Raw(t.Context(), clusterctl.ComponentsOptions{Version: settings.Version()})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := utilyaml.ToUnstructured(raw)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			kinds = append(kinds, object.GetName())
		case "Deployment":
			var deployment appsv1.Deployment
			err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &deployment, true)
			if err != nil {
				t.Fatal(err)
			}
			if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "quay.io/jetstack/cert-manager-controller:"+
				DefaultCertManagerVersion {
				t.Errorf("image %s", image)
			}
		}
	}
	want := []string{"issuers.cert-manager.io", "clusterissuers.cert-manager.io", "certificates.cert-manager.io",
		"certificaterequests.cert-manager.io"}
	if !slices.Equal(kinds, want) {
		t.Errorf("CRDs %v, want %v", kinds, want)
	}
	if settings.Version() != DefaultCertManagerVersion { // that of the command's clusterctl, which is newer than the lab's
		t.Errorf("cert-manager %s is on offer, not %s", settings.Version(), DefaultCertManagerVersion)
	}
}
