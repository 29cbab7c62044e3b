package repository

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/originals"
)

// releases writes two releases of CAPH, one of cert-manager and two of talos-ccm, as the command does.
func releases(t *testing.T) originals.Set {
	t.Helper()
	dir := t.TempDir()
	var record struct {
		Projects []map[string]any `json:"projects"`
	}
	add := func(project string, chart bool, versions ...string) {
		var folders []string
		for _, version := range versions {
			folder := filepath.Join(dir, project, version)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			o := originals.Original{Project: project, Version: version}
			names := map[string][]string{originals.CAPH: {"infrastructure-components.yaml", "metadata.yaml"},
				originals.CertManager: {"cert-manager.yaml"}, originals.TalosCCM: {"chart.tgz"}}[project]
			for _, name := range names {
				o.Files = append(o.Files, originals.File{Name: name})
				if err := os.WriteFile(filepath.Join(folder, name), []byte(name+" "+version), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if chart {
				o.Chart = map[string]any{"name": "talos-cloud-controller-manager", "version": version, "appVersion": "v1.12.0"}
			}
			data, err := json.Marshal(o)
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, "original.json"), data, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			folders = append(folders, folder)
		}
		record.Projects = append(record.Projects, map[string]any{"project": project, "folders": folders})
	}
	add(originals.CAPH, false, "v1.1.8", "v1.0.7")
	add(originals.CertManager, false, "v1.18.0")
	add(originals.TalosCCM, true, "0.5.4", "0.5.3")
	data, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "originals.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	set, err := originals.Load(filepath.Join(dir, "originals.json"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Released manifests and charts are where those of the stand-ins are, and only those of their projects.
func TestReleasedInPlaceOfStandIns(t *testing.T) {
	dir := t.TempDir()
	contents := Contents{Providers: filepath.Join(dir, providersFolder), Components: map[string]string{},
		Versions: map[string]string{}, Offers: map[string][]string{}}
	set := releases(t)
	if err := contents.writeCAPH(set.Of(originals.CAPH)); err != nil {
		t.Fatal(err)
	}
	if err := contents.writeCertManager("v1.21.1", set.Of(originals.CertManager)); err != nil {
		t.Fatal(err)
	}
	if err := contents.writeCharts(filepath.Join(dir, chartsFolder), set); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"infrastructure-hetzner/v1.1.8/infrastructure-components.yaml": "infrastructure-components.yaml v1.1.8",
		"infrastructure-hetzner/v1.0.7/metadata.yaml":                  "metadata.yaml v1.0.7",
		"cert-manager/v1.18.0/cert-manager.yaml":                       "cert-manager.yaml v1.18.0",
	} {
		if data, err := os.ReadFile(filepath.Join(contents.Providers, path)); err != nil || string(data) != want {
			t.Errorf("%s is %q, %v", path, data, err)
		}
	}
	if _, err := os.Stat(filepath.Join(contents.Providers, "infrastructure-hetzner", "v1.0.12")); err == nil {
		t.Error("a version of the stand-in is on offer beside the releases")
	}
	if contents.Versions["CAPH"] != "v1.1.8" || !slices.Equal(contents.Offers["CAPH"], []string{"v1.1.8", "v1.0.7"}) ||
		contents.CertManagerVersion != "v1.18.0" || !strings.Contains(contents.CertManager, "v1.18.0") ||
		!strings.Contains(contents.Components[caphLabel], "v1.1.8") {
		t.Errorf("contents are %+v", contents)
	}
	if contents.Versions["TALOS_CCM"] != "0.5.4" || !slices.Equal(contents.Offers["TALOS_CCM"], []string{"0.5.4", "0.5.3"}) ||
		contents.Versions["HCLOUD_CCM"] != "1.29.2" {
		t.Errorf("charts are %v of %v", contents.Versions, contents.Offers)
	}
	for path, want := range map[string]string{
		"talos-cloud-controller-manager-0.5.3.tgz":                            "chart.tgz 0.5.3",
		"v2/siderolabs/charts/talos-cloud-controller-manager/tags/list":       `["0.5.4","0.5.3"]`,
		"v2/siderolabs/charts/talos-cloud-controller-manager/manifests/0.5.3": ociDigest([]byte("chart.tgz 0.5.3")),
		"index.yaml": hexDigest([]byte("chart.tgz 0.5.4")),
	} {
		if data, err := os.ReadFile(filepath.Join(dir, chartsFolder, path)); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s is %.300q, %v", path, data, err)
		}
	}
	all := strings.Join(notes(set), "\n")
	if strings.Contains(all, "CAPH") || strings.Contains(all, "cert-manager's") ||
		!strings.Contains(all, "of the charts cilium, hcloud-cloud-controller-manager, hcloud-csi, cluster-autoscaler, "+
			"metrics-server, gitea are stand-ins") {
		t.Errorf("notes are\n%s", all)
	}
}
