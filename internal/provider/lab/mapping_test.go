package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// A mapping names images in place of executables: of two versions of CAPH, each lab runs its own.
func TestAMappingTakesProgramsOutOfImages(t *testing.T) {
	r := serveImages(t)
	caph := upstreamProgram{image: "ghcr.io/syself/caph"}
	for _, version := range []string{"v1.0.7", "v1.0.12"} {
		r.push(t, caph, caph.image+":"+version)
	}
	home := t.TempDir()
	programs := map[string]string{}
	for _, version := range []string{"v1.0.7", "v1.0.12"} {
		b := r.builderOf(t, with(func(c *config.Config) { c.CAPHVersion = version }), home)
		b.lab = t.TempDir()
		file := filepath.Join(t.TempDir(), "images.yaml")
		writeFile(t, file, "- image: ghcr.io/syself/caph\n  from: configured\n  args: [--v=2]\n"+
			"- image: example.com/other\n  exec: /bin/true\n")
		made, err := b.resolveMapping(t.Context(), "--lab-images", file, quiet)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(made)
		if err != nil {
			t.Fatal(err)
		}
		var mapping []struct {
			Image, Exec, Note, From string
			Args                    []string
		}
		if err := yaml.Unmarshal(data, &mapping); err != nil || len(mapping) != 2 || mapping[0].From != "" ||
			len(mapping[0].Args) != 1 || mapping[1].Exec != "/bin/true" ||
			!strings.HasPrefix(mapping[0].Note, "from the image ghcr.io/syself/caph:"+version+"@sha256:") {
			t.Fatalf("%v in\n%s", err, data)
		}
		if is, err := os.ReadFile(mapping[0].Exec); err != nil || string(is) != "ghcr.io/syself/caph:"+version {
			t.Errorf("the program is %q, %v", is, err)
		}
		programs[mapping[0].Exec] = version
	}
	if len(programs) != 2 {
		t.Errorf("programs are %v", programs)
	}
}

func TestMistakesInAMapping(t *testing.T) {
	r := serveImages(t)
	b := r.builderOf(t, config.Defaults(), t.TempDir())
	for text, want := range map[string]string{
		"- from: configured\n":                                  "line 1: image is missing",
		"- image: a\n  exec: /x\n  from: b:v1\n":                "line 3: exec and from are both given for a",
		"- image: example.com/a\n  from: configured\n":          "example.com/a has no configured version",
		"- image: registry.k8s.io/etcd\n  from: x.io/program\n": "names no version",
		"- image: ghcr.io/syself/caph\n  from: x.io/a:v1\n":     "x.io/a:v1",
		"- image: [\n": "yaml",
	} {
		file := filepath.Join(t.TempDir(), "images.yaml")
		writeFile(t, file, text)
		_, err := b.resolveMapping(t.Context(), "--lab-images", file, quiet)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
		if wrong, ok := errors.AsType[*usage.Error](err); !ok && strings.Contains(text, "exec") {
			t.Errorf("%q is no mistake of the operator's: %v", text, wrong)
		}
	}
	// One without images is the lab's as it is, also one that is empty or has mistakes that the lab finds.
	for _, text := range []string{"", "- image: a\n  exec: /x\n", "a: b\n"} {
		file := filepath.Join(t.TempDir(), "images.yaml")
		writeFile(t, file, text)
		if got, err := b.resolveMapping(t.Context(), "--lab-images", file, quiet); err != nil || got != file {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	other := with(func(c *config.Config) { c.TalosCCMVersion = "9.9.9" })
	if _, err := configuredReference(other, "ghcr.io/siderolabs/talos-cloud-controller-manager"); err == nil ||
		!strings.Contains(err.Error(), "is not known") {
		t.Errorf("an unknown chart: %v", err)
	}
	if got, err := configuredReference(other, "hetznercloud/hcloud-cloud-controller-manager"); err != nil ||
		got != "docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.39.0" {
		t.Errorf("an image without a registry: %s, %v", got, err)
	}
}
