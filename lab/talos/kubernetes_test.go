package talos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/slipway-k8s/slipway/lab/programs"
)

// setOf writes programs of a Kubernetes version that are none, as if they came out of images.
func setOf(t *testing.T, version string) string {
	t.Helper()
	bin := t.TempDir()
	var list []string
	for _, file := range programs.Kubernetes().Files {
		if err := os.WriteFile(filepath.Join(bin, file), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf(`{"file": %q, "version": %q, "image": %q}`, file, version, file))
	}
	text := fmt.Sprintf(`{"programs": [%s]}`, strings.Join(list, ","))
	if err := os.WriteFile(filepath.Join(bin, "programs.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return bin
}

// A server runs the programs of the versions that its configuration names, each by the tag of its own image.
func TestServersRunTheConfiguredKubernetes(t *testing.T) {
	f := newFixture(t)
	older, newer := setOf(t, "v1.32.3"), setOf(t, "v1.33.13")
	sets := programs.NewSets(programs.Kubernetes())
	if err := sets.AddOwn(older); err != nil {
		t.Fatal(err)
	}
	x := &Talos{config: Config{Kubernetes: sets}}
	server := func(tags ...string) *system {
		return &system{talos: x, notes: map[string]string{}, config: f.config(machine.TypeControlPlane, fmt.Sprintf(
			"cluster: {apiServer: {image: 'registry.k8s.io/kube-apiserver:%s'}, controllerManager: {image: "+
				"'registry.k8s.io/kube-controller-manager:%s'}, scheduler: {image: 'registry.k8s.io/kube-scheduler:%s'}}",
			tags[0], tags[1], tags[2]))}
	}
	y := server("v1.33.5", "v1.32.3", "v1.32.3")
	if _, err := y.chooseKubernetes(); err == nil || !strings.Contains(err.Error(), "registry.k8s.io/kube-apiserver:v1.33.5") ||
		!strings.Contains(err.Error(), "no programs of Kubernetes v1.33.5") {
		t.Errorf("without programs of that minor: %v", err)
	}
	if err := sets.Add("v1.33.5", newer); err != nil {
		t.Fatal(err)
	}
	folders, err := y.chooseKubernetes()
	if err != nil || folders["kube-apiserver"] != newer || folders["kube-controller-manager"] != older ||
		folders["kube-scheduler"] != older || y.kubernetes != "v1.33.13 for v1.33.5, v1.32.3" || len(y.notes) != 0 {
		t.Errorf("with them: %v, %v, status %q, notes %v", folders, err, y.kubernetes, y.notes)
	}
	if err := sets.Add("v1.31.5", older); err != nil {
		t.Fatal(err)
	}
	y = server("v1.31.5", "v1.31.5", "v1.31.5")
	if folders, err = y.chooseKubernetes(); err != nil || folders["kube-apiserver"] != older ||
		y.kubernetes != "v1.32.3 for v1.31.5" || len(y.notes) != 3 {
		t.Errorf("where another minor stands in: %v, %v, status %q, notes %v", folders, err, y.kubernetes, y.notes)
	}
	if _, err := server("latest", "v1.32.3", "v1.32.3").chooseKubernetes(); err == nil {
		t.Error("a tag that is no version has programs")
	}
}
