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
