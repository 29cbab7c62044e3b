package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// tinyBinary builds the tiny program for Linux on this machine's architecture.
func tinyBinary(t *testing.T) (path string) {
	t.Helper()
	r := tiny(t)
	archive, err := packLab(t.Context(), r.source)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "program")
	if err := r.compile(t.Context(), target{"linux", runtime.GOARCH}, archive, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// bothOf is one binary as that of two architectures: an image is made without running it.
func bothOf(path string) []binary { return []binary{{"amd64", path}, {"arm64", path}} }

func TestImage(t *testing.T) {
	program, out := tinyBinary(t), t.TempDir()
	made, err := newImage(bothOf(program))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := made.save(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(archive, "slipway-v0.0.0-") || !strings.HasSuffix(archive, "-oci.tar") {
		t.Errorf("the archive is %s", archive)
	}
	unpacked := t.TempDir()
	unpack(t, open(t, filepath.Join(out, archive)), unpacked)
	read, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := read.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 ||
		outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != made.tag {
		t.Fatalf("the layout has %+v, %v", outer, err)
	}
	index, err := read.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("the index has %+v, %v", manifest, err)
	}
	for i, platform := range []string{"linux/amd64", "linux/arm64"} {
		if is := manifest.Manifests[i].Platform.String(); is != platform {
			t.Errorf("image %d is of %s, want %s", i, is, platform)
		}
		one, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		testOneImage(t, one, platform, program)
	}
}

// testOneImage looks at the image of one architecture, and runs its program as a container runtime does.
func testOneImage(t *testing.T, one v1.Image, platform, program string) {
	t.Helper()
	config, err := one.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if is := config.Platform().String(); is != platform {
		t.Errorf("the configuration is of %s, want %s", is, platform)
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/slipway"}) || c.Cmd != nil ||
		c.WorkingDir != "/work" {
		t.Errorf("the configuration is %+v", c)
	}
	labels := config.Config.Labels
	if labels[labelPrefix+"title"] != "slipway" || labels[labelPrefix+"licenses"] != "Apache-2.0" ||
		!strings.HasPrefix(labels[labelPrefix+"version"], "v0.0.0-") || len(labels[labelPrefix+"revision"]) != 40 ||
		labels[labelPrefix+"source"] != "https://example.com/tiny" || len(labels) != 5 {
		t.Errorf("the labels are %v", labels)
	}
	layers, err := one.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	headers := unpack(t, content, root)
	var list []string
	for _, h := range headers {
		list = append(list, fmt.Sprintf("%s %o %d:%d %d", h.Name, h.Mode, h.Uid, h.Gid, h.ModTime.Unix()))
	}
	if want := []string{"slipway 755 0:0 0", "tmp/ 1777 0:0 0", "work/ 755 65532:65532 0"}; !slices.Equal(list, want) {
		t.Errorf("the layer has %q, want %q", list, want)
	}
	want, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(filepath.Join(root, "slipway")); err != nil || !bytes.Equal(is, want) {
		t.Errorf("/slipway is not the program: %v", err)
	}
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Log("the program is not run: only root can enter another root folder")
		return
	}
	enterable(t, root)
	run := exec.CommandContext(t.Context(), config.Config.Entrypoint[0])
	run.Dir, run.Env = config.Config.WorkingDir, config.Config.Env
	run.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if printed, err := run.Output(); err != nil || !bytes.HasPrefix(printed, []byte{0x1f, 0x8b}) {
		t.Errorf("the program prints %d bytes, %v", len(printed), err)
	}
}

// enterable lets other users reach a temporary folder.
func enterable(t *testing.T, root string) {
	t.Helper()
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, path string) io.Reader {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

// unpack unpacks an archive.
func unpack(t *testing.T, archive io.Reader, dir string) (headers []*tar.Header) {
	t.Helper()
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(files); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, fs.FileMode(h.Mode)))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestImageIsTheSameTwice(t *testing.T) {
	program := tinyBinary(t)
	var archives [][]byte
	for range 2 {
		out := t.TempDir()
		made, err := newImage(bothOf(program))
		if err != nil {
			t.Fatal(err)
		}
		name, err := made.save(out)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, data)
		moved := filepath.Join(t.TempDir(), "elsewhere") // another place and time of the file
		if err := os.Rename(program, moved); err != nil {
			t.Fatal(err)
		}
		program = moved
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of one binary differ")
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	reference := strings.TrimPrefix(server.URL, "http://") + "/slipway:v1"
	made, err := newImage(bothOf(tinyBinary(t)))
	if err != nil {
		t.Fatal(err)
	}
	to, err := parsePush(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.push(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Index(to, remote.WithAuthFromKeychain(authn.NewMultiKeychain()))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(pushed); err != nil {
		t.Error(err)
	}
	want, err := made.index.Digest()
	if is, err2 := pushed.Digest(); err != nil || err2 != nil || is != want {
		t.Errorf("the registry has %s, want %s: %v, %v", is, want, err, err2)
	}
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := made.push(ctx, to); err == nil || !strings.Contains(err.Error(), reference) {
		t.Errorf("a push to a registry that is away: %v", err)
	}
}

func TestPushIsToNoDefault(t *testing.T) {
	for _, reference := range []string{"slipway", "registry.example.com/slipway", "slipway:v1",
		"registry.example.com/a b:v1"} {
		r := release{source: "/does-not-exist", program: ".", name: "x", image: true}
		err := r.buildAndPush(t.Context(), t.TempDir(), []target{host()}, reference)
		if bad := (*name.ErrBadName)(nil); !errors.As(err, &bad) {
			t.Errorf("%s: %v", reference, err)
		}
	}
}

// TestBuildWithImage looks at what names the files of a release, which -check compares.
func TestBuildWithImage(t *testing.T) {
	r, out := tiny(t), t.TempDir()
	r.image = true
	if _, err := r.build(t.Context(), out, []target{{"darwin", "arm64"}}); !errors.Is(err, errNoLinux) {
		t.Errorf("an image without Linux: %v", err)
	}
	if _, err := r.build(t.Context(), out, []target{{"linux", runtime.GOARCH}}); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(out, sumsFile))
	if err != nil || strings.Count(string(sums), "-oci.tar\n") != 1 || strings.Count(string(sums), "\n") != 4 {
		t.Errorf("%s, %v", sums, err)
	}
	var list struct{ Manifests []json.RawMessage }
	for name := range strings.FieldsSeq(string(sums)) {
		if !strings.HasSuffix(name, "-oci.tar") {
			continue
		}
		dir := t.TempDir()
		unpack(t, open(t, filepath.Join(out, name)), dir)
		data, err := os.ReadFile(filepath.Join(dir, "index.json"))
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil || len(list.Manifests) != 1 {
			t.Errorf("index.json is %s, %v", data, err)
		}
	}
}
