package kind

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/steps"
)

const testImage = "kindest/node:v1.33.7@sha256:0"

// What a creation that fails leaves is recognized by the mark in its container, and deleted; a container of that name
// that another state folder created, or none, is not.
func TestWhatKindCreatesIsMarked(t *testing.T) {
	const name, node = "k8s-mgmt", "k8s-mgmt-control-plane"
	present := map[string]string{testImage: "[{}]"}
	did := docker(t, nil, present)
	m := &Provider{kind: dockerKind{log: io.Discard, engines: &chooser{}}, image: testImage, files: folder(t)}
	_, err := m.Ensure(t.Context(), name, quiet)
	if err == nil || !strings.Contains(err.Error(), "docker run: Error response from daemon: port is already allocated") {
		t.Fatalf("the creation does not tell what the engine said: %v", err)
	}
	if want := "run " + testImage + "\nrm " + node + "\n"; did() != want {
		t.Errorf("docker did %q, want %q", did(), want)
	}
	if left, _ := filepath.Glob(m.files.Path("kind-*")); len(left) > 0 {
		t.Errorf("left in the state folder: %q", left)
	}
	for title, mark := range map[string]string{"another state folder": markFolder + "/fedcba9876543210", "no one": "/lib/modules"} {
		did := docker(t, map[string]string{node: mark}, present)
		if err := m.files.Write(making(name), []byte("then")); err != nil {
			t.Fatal(err)
		}
		if err := m.Delete(t.Context(), name); !errors.Is(err, steps.ErrNotOurs) || !strings.Contains(err.Error(),
			"container 0123456789ab, created 2026-11-25T10:00:00.1Z") {
			t.Errorf("deleting one of %s: %v", title, err)
		}
		if _, err := m.Ensure(t.Context(), name, quiet); err == nil || did() != "" {
			t.Errorf("creating one of %s again: %v; docker did %q", title, err, did())
		}
	}
}

// Where the container's name is taken while kind works, the container that has it stays.
func TestKindLeavesAContainerThatCameMeanwhile(t *testing.T) {
	const node = "k8s-mgmt-control-plane"
	did := docker(t, nil, map[string]string{testImage: "[{}]"})
	t.Setenv("TAKEN", node)
	m := &Provider{kind: dockerKind{log: io.Discard, engines: &chooser{}}, image: testImage, files: folder(t)}
	_, err := m.Ensure(t.Context(), "k8s-mgmt", quiet)
	if err == nil || did() != "run "+testImage+"\n" {
		t.Errorf("%v; docker did %q", err, did())
	}
}
