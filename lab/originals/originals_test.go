package originals_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/originals"
)

// write writes a release, or what a lab runs.
func write(t *testing.T, file string, content any) {
	t.Helper()
	data, err := json.Marshal(content)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// loaded has two releases of CAPH, a stand-in for talos-ccm with a reason, and stand-ins without one.
func loaded(t *testing.T) (originals.Set, string) {
	t.Helper()
	dir := t.TempDir()
	var folders []string
	for _, version := range []string{"v1.0.12", "v1.0.7"} {
		folder := filepath.Join(dir, version, "bin")
		write(t, filepath.Join(folder, "original.json"), originals.Original{Project: originals.CAPH, Version: version,
			Source: "https://example.org/" + version, Programs: []originals.Program{{Image: "ghcr.io/syself/caph:" + version,
				Digest: "sha256:" + version, File: "caph", Prefix: []string{"run"}}}})
		folders = append(folders, folder)
	}
	write(t, filepath.Join(dir, "originals.json"), map[string]any{"projects": []map[string]any{
		{"project": originals.CAPH, "folders": folders},
		{"project": originals.TalosCCM, "standIn": "it could not be fetched"}}})
	set, err := originals.Load(filepath.Join(dir, "originals.json"))
	if err != nil {
		t.Fatal(err)
	}
	return set, dir
}

// Each version has its own program; an image of another version and one of a project without release have the stand-in.
func TestPrograms(t *testing.T) {
	set, dir := loaded(t)
	mapping := set.Programs(kubelet.DefaultPrograms(nil))
	for image, want := range map[string]string{
		"ghcr.io/syself/caph:v1.0.7":                                   filepath.Join(dir, "v1.0.7", "bin", "caph") + " run: from the image",
		"ghcr.io/syself/caph:v1.0.12":                                  filepath.Join(dir, "v1.0.12", "bin", "caph") + " run: from the image",
		"ghcr.io/syself/caph:v1.0.8":                                   "lab caph: ",
		"ghcr.io/siderolabs/talos-cloud-controller-manager:v1.12.0":    "lab talos-ccm: it could not be fetched",
		"hetznercloud/hcloud-cloud-controller-manager:v1.29.2":         "lab hcloud-ccm: ",
		"registry.k8s.io/cluster-api/cluster-api-controller:v1.10.10":  "cluster-api : ",
		"ghcr.io/syself/caph:v1.0.7@sha256:" + strings.Repeat("0", 64): filepath.Join(dir, "v1.0.7"),
	} {
		p, ok := kubelet.Match(mapping, image)
		if got := p.Exec + " " + strings.Join(p.Prefix, " ") + ": " + p.Note; !ok || !strings.HasPrefix(got, want) {
			t.Errorf("%s runs %q, want %q", image, got, want)
		}
	}
	for _, p := range mapping {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestWithout(t *testing.T) {
	set, _ := loaded(t)
	set = set.Without("no namespaces")
	if all := set.All(); len(all) != 0 {
		t.Errorf("releases are %v", all)
	}
	for image, want := range map[string]string{"ghcr.io/syself/caph:v1.0.7": "no namespaces",
		"ghcr.io/siderolabs/talos-cloud-controller-manager:v1.12.0": "it could not be fetched"} {
		if p, _ := kubelet.Match(set.Programs(kubelet.DefaultPrograms(nil)), image); p.Fidelity != kubelet.StandIn || p.Note != want {
			t.Errorf("%s runs %+v", image, p)
		}
	}
}

func TestLoad(t *testing.T) {
	if set, err := originals.Load(""); err != nil || set.All() != nil {
		t.Errorf("without a file: %v, %v", set, err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "originals.json")
	write(t, file, map[string]any{"projects": []map[string]any{{"project": "caph", "folders": []string{dir}}}})
	if _, err := originals.Load(file); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "original.json")) {
		t.Errorf("of a release that is gone: %v", err)
	}
}
