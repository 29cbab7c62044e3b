package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramsOutOfImages(t *testing.T) {
	bin := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(listFile, `{"programs": [{"file": "kube-apiserver", "module": "k8s.io/kubernetes", "version": "v1.32.2",
		"image": "registry.k8s.io/kube-apiserver:v1.32.2", "digest": "sha256:abc", "manifest": "sha256:def"}]}`)
	if _, err := Read(bin, "kube-apiserver"); err == nil || !strings.Contains(err.Error(), "registry.k8s.io/kube-apiserver") {
		t.Errorf("without the file: %v", err)
	}
	write("kube-apiserver", "no Go program: its version is the list's")
	all, err := Read(bin, "kube-apiserver")
	if err != nil || len(all) != 1 || all[0].Version != "v1.32.2" ||
		all[0].Origin() != "from the image registry.k8s.io/kube-apiserver:v1.32.2@sha256:abc" {
		t.Errorf("%+v, %v", all, err)
	}
	write("kube-scheduler", "of no list, and no Go program")
	if _, err := Read(bin, "kube-scheduler"); err == nil || !strings.Contains(err.Error(), "lab build") {
		t.Errorf("a program without a version: %v", err)
	}
	write(listFile, "{")
	if _, err := Read(bin, "kube-apiserver"); err == nil || !strings.Contains(err.Error(), listFile) {
		t.Errorf("a damaged list: %v", err)
	}
}

func TestProgramsBuiltFromSource(t *testing.T) {
	self, err := os.Executable() // a Go program
	if err != nil {
		t.Fatal(err)
	}
	all, err := Read(filepath.Dir(self), filepath.Base(self))
	if err != nil || len(all) != 1 || !strings.HasPrefix(all[0].Origin(), "built from source: github.com/slipway-k8s/slipway/lab ") {
		t.Errorf("%+v, %v", all, err)
	}
	if listed, err := FromImages(filepath.Dir(self)); err != nil || listed != nil {
		t.Errorf("list %v, %v", listed, err)
	}
}

// kubernetesIn writes programs of Kubernetes of a version, as if they came out of images.
func kubernetesIn(t *testing.T, version string) string {
	t.Helper()
	bin := t.TempDir()
	var list []string
	for _, file := range Kubernetes().Files {
		if err := os.WriteFile(filepath.Join(bin, file), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		list = append(list, `{"file": "`+file+`", "version": "`+version+`", "image": "`+file+":"+version+`"}`)
	}
	text := `{"programs": [` + strings.Join(list, ",") + `]}`
	if err := os.WriteFile(filepath.Join(bin, listFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestServersChooseByVersion(t *testing.T) {
	first, other := kubernetesIn(t, "v1.32.3"), kubernetesIn(t, "v1.33.13")
	k := NewSets(Kubernetes())
	if err := k.AddOwn(first); err != nil {
		t.Fatal(err)
	}
	choose := func(wanted, bin string, standsIn bool) {
		t.Helper()
		set, err := k.Choose(wanted)
		if err != nil || set.Bin != bin || set.StandsInFor(wanted) != standsIn {
			t.Errorf("for %s: %+v, %v", wanted, set, err)
		}
	}
	add := func(wanted, bin string) {
		t.Helper()
		if err := k.Add(wanted, bin); err != nil {
			t.Fatal(err)
		}
	}
	choose("v1.32.2", first, false)
	_, err := k.Choose("v1.33.5")
	for _, says := range []string{"v1.33.5", "only of v1.32.3", "lab build KUBERNETES_VERSION=v1.33.5"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a minor that is not there: %v, want %q", err, says)
		}
	}
	add("v1.33.5", other)
	choose("v1.33.5", other, false)
	choose("v1.33.13", other, false)
	choose("v1.32.2", first, false)
	add("v1.33.13", other) // the same again
	if sets := k.List(); len(sets) != 2 {
		t.Errorf("sets are %+v", sets)
	}

	// One that stands in for another minor does so for that minor alone.
	add("v1.31.5", first)
	choose("v1.31.0", first, true)
	choose("v1.32.2", first, false)
	if _, err := k.Choose("v1.30.0"); err == nil || !strings.Contains(err.Error(), "only of v1.32.3 and v1.33.13;") {
		t.Errorf("a minor that nothing stands in for: %v", err)
	}

	// Two patch versions, as out of images: each server has its own.
	patch := kubernetesIn(t, "v1.33.9")
	add("v1.33.9", patch)
	choose("v1.33.13", other, false)
	choose("v1.33.9", patch, false)
	choose("v1.33.1", patch, false) // the last that was added
	add("v1.33.7", first)           // a stand-in counts only where there is nothing of the minor
	choose("v1.33.7", patch, false)

	for _, wanted := range []string{"latest", ""} {
		if _, err := k.Choose(wanted); err == nil {
			t.Errorf("the tag %q has programs", wanted)
		}
	}
	if err := k.Add("v1.34.0", t.TempDir()); err == nil {
		t.Error("an empty folder was added")
	}
	if err := k.Add("v1.34.0", "bin"); err == nil {
		t.Error("a relative path was added")
	}
}
