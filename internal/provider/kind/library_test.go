package kind

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What Docker says is the reason, and not the exit code of the program that kind ran.
func TestKindTellsWhatTheEngineSaid(t *testing.T) {
	const said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
	dir := t.TempDir()
	script := "#!/bin/sh\nif [ \"$1\" = -v ]; then echo 'Docker version 28.0.1, build 1'; exit 0; fi\necho a warning " +
		">&2\necho '" + said + "' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	kind := dockerKind{log: io.Discard, engines: &chooser{}}
	_, listed := kind.clusters()
	_, opened := kind.kubeconfig("k8s-mgmt")
	_, asked := kind.initialised("k8s-mgmt")
	for what, err := range map[string]error{"clusters": listed, "kubeconfig": opened, "initialised": asked,
		"remove": kind.remove("k8s-mgmt", filepath.Join(dir, "kubeconfig"))} {
		if what == "clusters" && (err == nil || !strings.Contains(err.Error(), "MANAGEMENT=local")) {
			t.Errorf("%s names no way out: %v", what, err)
		}
		if err == nil || !strings.Contains(err.Error(), "docker ps: "+said) || strings.Contains(err.Error(),
			"exit status") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The line with the reason is reported, wherever it is.
func TestReasonOfAProgram(t *testing.T) {
	for output, want := range map[string]string{
		"":                         "",
		"Error: image not known\n": "Error: image not known",
		"a1b2c3\ndocker: Error response from daemon: port is already allocated.\nSee 'docker run --help'.\n": "Error response " +
			"from daemon: port is already allocated.",
		"docker: Error response from daemon: no space left on device\n\nRun 'docker run --help' for more information\n": "Error " +
			"response from daemon: no space left on device",
		"invalid reference format\nSee 'docker run --help'.": "invalid reference format",
	} {
		if got := reason(output); got != want {
			t.Errorf("%q of %q, want %q", got, output, want)
		}
	}
}
