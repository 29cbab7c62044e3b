package repository

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// fluxModules are the modules of the controllers, as the module that builds them resolves them.
func fluxModules(t *testing.T) []Module {
	t.Helper()
	arguments := []string{"mod", "download", "-json"}
	for _, c := range fluxControllers {
		arguments = append(arguments, fluxModule(c.name))
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = "../flux/2.7"
	out, err := command.Output()
	if err != nil {
		t.Fatalf("download the modules of Flux's controllers: %v", err)
	}
	var modules []Module
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m Module
		if err := decoder.Decode(&m); err != nil {
			t.Fatal(err)
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b Module) int { return fluxOrder(a) - fluxOrder(b) })
	return modules
}

func fluxOrder(m Module) int {
	return slices.IndexFunc(fluxControllers, func(c struct{ name, version string }) bool {
		return fluxModule(c.name) == m.Path
	})
}

func TestFluxManifest(t *testing.T) {
	manifest, err := fluxManifest(fluxModules(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	images := regexp.MustCompile(`image: (\S+)`).FindAllStringSubmatch(string(manifest), -1)
	for _, document := range bytes.Split(manifest, []byte("\n---\n")) {
		var o struct {
			Kind     string
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
			}
		}
		if err := yaml.Unmarshal(document, &o); err != nil {
			t.Fatal(err)
		}
		kinds[o.Kind]++
		if o.Metadata.Labels["app.kubernetes.io/version"] != FluxVersion {
			t.Errorf("%s %s has labels %v", o.Kind, o.Metadata.Name, o.Metadata.Labels)
		}
		if o.Kind == "Deployment" && (o.Metadata.Namespace != "flux-system" ||
			!strings.Contains(string(document), "serviceAccountName: "+o.Metadata.Name)) {
			t.Errorf("Deployment %s of namespace %q has not its own account", o.Metadata.Name, o.Metadata.Namespace)
		}
	}
	want := map[string]int{"CustomResourceDefinition": 8, "Deployment": 3, "ServiceAccount": 3, "Service": 1,
		"Namespace": 1}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("the manifest has %d of %s, want %d: %v", kinds[kind], kind, n, kinds)
		}
	}
	for i, c := range fluxControllers {
		wanted := "ghcr.io/fluxcd/" + c.name + ":" + c.version
		if !slices.ContainsFunc(images, func(m []string) bool { return m[1] == wanted }) ||
			len(images) != len(fluxControllers) {
			t.Errorf("image %d: the manifest has %v, want %s", i, images, wanted)
		}
	}
}

// TestFluxManifestOfOtherVersions: programs of another release are refused, with the way to those of this one.
func TestFluxManifestOfOtherVersions(t *testing.T) {
	modules := fluxModules(t)
	modules[1].Version = "v1.6.0"
	if _, err := fluxManifest(modules); err == nil || !strings.Contains(err.Error(), "kustomize-controller v1.6.0") {
		t.Errorf("got %v", err)
	}
}

// TestFluxComment: the module that builds the programs names the release.
func TestFluxComment(t *testing.T) {
	data, err := os.ReadFile("../flux/2.7/go.mod")
	if err != nil || !strings.Contains(string(data), "Flux "+FluxVersion+",") {
		t.Errorf("lab/flux/2.7/go.mod does not name %s: %v", FluxVersion, err)
	}
}
