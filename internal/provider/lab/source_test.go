package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packed is an archive of files with their contents.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var data bytes.Buffer
	zip := gzip.NewWriter(&data)
	out := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		if err := out.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// ownCache makes a folder the user's cache and returns how many files are in it.
func ownCache(t *testing.T) (files func() int) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	return func() (n int) {
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				n++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// A released command builds the lab from what it carries, wherever it is called.
func TestSourceThatTheCommandCarries(t *testing.T) {
	files := ownCache(t)
	archive := packed(t, "go.mod", "module "+Module+"\n", "cmd/lab/main.go", "package main\n")
	var dir string
	for range 2 {
		var err error
		if dir, err = source(t.TempDir(), archive); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "cmd", "lab", "main.go")); err != nil ||
			string(data) != "package main\n" {
			t.Fatalf("%q, %v", data, err)
		}
	}
	if n := files(); n != 2 {
		t.Errorf("%d files are in the cache", n)
	}
	if other, err := source(t.TempDir(), packed(t, "go.mod", "module "+Module+"\n")); err != nil || other == dir {
		t.Errorf("another release has the same folder %s: %v", other, err)
	}
	clone := t.TempDir()
	lab := filepath.Join(clone, "lab")
	if err := os.Mkdir(lab, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lab, "go.mod"), []byte("module "+Module+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := source(clone, archive); err != nil || got != lab {
		t.Errorf("in a clone it is %s, %v", got, err)
	}
}

// An archive that is cut off leaves nothing that a later call takes for the whole.
func TestSourceThatIsCutOff(t *testing.T) {
	files := ownCache(t)
	archive := packed(t, "go.mod", "module "+Module+"\n", "large.go", strings.Repeat("x", 1<<20))
	for range 2 {
		if dir, err := source(t.TempDir(), archive[:len(archive)-40]); err == nil {
			t.Errorf("it was unpacked into %s", dir)
		}
	}
	if n := files(); n != 0 {
		t.Errorf("%d files are in the cache", n)
	}
	if dir, err := source(t.TempDir(), packed(t, "../escaped", "x")); err == nil {
		t.Errorf("a file outside of %s was written", dir)
	}
}

// What is missing is said before anything is created.
func TestSourceThatIsMissing(t *testing.T) {
	files := ownCache(t)
	if _, err := source(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "in no clone of Slipway") ||
		!strings.Contains(err.Error(), "make install") {
		t.Errorf("a command that carries no source, outside of a clone: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := source(t.TempDir(), packed(t, "go.mod", "")); err == nil || !strings.Contains(err.Error(), "needs Go") {
		t.Errorf("without Go: %v", err)
	}
	if n := files(); n != 0 {
		t.Errorf("%d files are in the cache", n)
	}
}

// The daemon is linked once for all labs of the same source; a lab keeps its own when the source changes.
func TestDaemonIsLinkedOnce(t *testing.T) {
	source, dir := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(source, "go.mod"), "module example.com/lab\n\ngo 1.26\n")
	write := func(says string) {
		writeFile(t, filepath.Join(source, "cmd", "lab", "main.go"),
			"package main\n\nfunc main() { println(\""+says+"\") }\n")
	}
	b := &builder{source: source, cache: filepath.Join(dir, "cache"), env: os.Environ()}
	build := func(lab string) os.FileInfo {
		path := filepath.Join(dir, lab)
		if err := b.daemon(t.Context(), path, quiet); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	write("first")
	first := build("first")
	if !os.SameFile(first, build("second")) {
		t.Error("the same source was linked twice")
	}
	write("changed")
	if changed := build("second"); os.SameFile(first, changed) {
		t.Error("the changed source was not built")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "first")).CombinedOutput()
	if err != nil || string(out) != "first\n" {
		t.Errorf("the daemon of the first lab says %q, %v", out, err)
	}
}
