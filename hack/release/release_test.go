package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// tiny is a repository with the places that a release needs, and a program that tells what it carries.
func tiny(t *testing.T) release {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                     "module example.com/tiny\n\ngo 1.26\n",
		"config/versions.yaml":       "date: 2026-11-25\n",
		"lab/go.mod":                 "module example.com/tiny/lab\n",
		"lab/lab.go":                 "package lab\n",
		"lab/kubernetes/1.33/go.mod": "module example.com/tiny/lab/kubernetes/1.33\n",
		"lab/lab_test.go":            "package lab\n",
		"internal/provider/lab/lab.go": "//go:build release\n\npackage lab\n\nimport _ \"embed\"\n\n//go:embed source.tar.gz\nvar " +
			"Source []byte\n",
		"cmd/bootstrap/main.go": "package main\n\nimport " +
			"(\n\t\"os\"\n\t\"runtime\"\n\n\t\"example.com/tiny/internal/provider/lab\"\n)\n\n" +
			"func main() {\n\t_, file, _, _ := " +
			"runtime.Caller(0)\n\tos.Stderr.WriteString(file)\n\tos.Stdout.Write(lab.Source)\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return release{source: dir, program: "./cmd/bootstrap", name: "bootstrap"}
}

func TestBuild(t *testing.T) {
	r, out := tiny(t), t.TempDir()
	if _, err := r.build(t.Context(), out, []target{host()}); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(out, fmt.Sprintf("bootstrap-%s-%s", host().os, host().arch))
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{binary, binary + ".cdx.json", filepath.Join(out, "versions.yaml")} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), filepath.Base(path)); !strings.Contains(string(sums), line) {
			t.Errorf("SHA256SUMS has no %q:\n%s", line, sums)
		}
	}
	archive, err := packLab(t.Context(), r.source)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"go.mod", "kubernetes/1.33/go.mod", "lab.go"} // with the modules of other Kubernetes versions
	if names := namesIn(t, archive); !slices.Equal(names, want) {
		t.Errorf("the lab's source is %v, want %v", names, want)
	}
	var place strings.Builder
	run := exec.CommandContext(t.Context(), binary)
	run.Stderr = &place
	if carried, err := run.Output(); err != nil || string(carried) != string(archive) {
		t.Errorf("the binary does not carry the lab's source: %d of %d bytes, %v", len(carried), len(archive), err)
	}
	if place.String() != "example.com/tiny/cmd/bootstrap/main.go" {
		t.Errorf("the binary knows where it was built: %s", &place)
	}
	status := exec.CommandContext(t.Context(), "git", "status", "--porcelain")
	status.Dir = r.source
	if changed, err := status.Output(); err != nil || len(changed) > 0 {
		t.Errorf("the build changed the tree: %s, %v", changed, err)
	}
}

// namesIn lists the files of a packed source.
func namesIn(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	in, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(in); ; {
		header, err := files.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

func TestCheck(t *testing.T) {
	r := tiny(t)
	r.image = runtime.GOOS == "linux"
	if err := r.check(t.Context(), []target{host()}); err != nil {
		t.Error(err)
	}
	program := filepath.Join(r.source, "cmd", "bootstrap", "main.go")
	if err := os.WriteFile(program, []byte("package main\n\nfunc main() { undefined() }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.check(t.Context(), []target{host()}); err != nil {
		t.Errorf("what is not committed is part of a release: %v", err)
	}
}

func TestSBOM(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sbom.json")
	if err := writeSBOM("bootstrap", binary, path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		BOMFormat  string
		Metadata   struct{ Component struct{ Name string } }
		Components []struct {
			Name, Version, PURL string
			Properties          []struct{ Name, Value string }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range list.Components {
		found[c.Name] = c.Version != "" && strings.HasPrefix(c.PURL, "pkg:golang/") &&
			(c.Name == "std" || strings.HasPrefix(c.Properties[0].Value, "h1:"))
	}
	if list.BOMFormat != "CycloneDX" || list.Metadata.Component.Name != "bootstrap" || !found["std"] ||
		!found["github.com/CycloneDX/cyclonedx-go"] {
		t.Errorf("the list is\n%s", data)
	}
}

func TestInstallDir(t *testing.T) {
	t.Setenv("HOME", "/home/operator")
	t.Setenv("GOBIN", "")
	t.Setenv("GOENV", "off")
	for prefix, want := range map[string]string{"/usr/local": "/usr/local/bin", "": "/home/operator/.local/bin"} {
		if got, err := installDir(prefix); err != nil || got != want {
			t.Errorf("PREFIX=%s: %s, %v, want %s", prefix, got, err, want)
		}
	}
	t.Setenv("GOBIN", "/go/bin")
	if got, err := installDir(""); err != nil || got != "/go/bin" {
		t.Errorf("with GOBIN: %s, %v", got, err)
	}
}
