package test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// inImage is a program in the image of its project: where it lies, and what the image runs.
type inImage struct {
	file, module, image, path string
	entrypoint                []string
	tag                       func(version string) string
}

// inImages are the images that the registry of the test serves, made as the projects make theirs.
func inImages() []inImage {
	kubernetes := func(file string) inImage {
		return inImage{file: file, module: "k8s.io/kubernetes", image: file, path: "usr/local/bin/" + file,
			entrypoint: []string{"/go-runner"}}
	}
	manager := func(file, module, image string) inImage {
		return inImage{file: file, module: module, image: image, path: "manager", entrypoint: []string{"/manager"}}
	}
	return []inImage{
		{file: "server", module: "go.etcd.io/etcd/server/v3", image: "etcd", path: "usr/local/bin/etcd",
			tag: func(v string) string { return strings.TrimPrefix(v, "v") + "-0" }},
		kubernetes("kube-apiserver"), kubernetes("kube-controller-manager"), kubernetes("kube-scheduler"),
		manager("cluster-api", "sigs.k8s.io/cluster-api", "cluster-api/cluster-api-controller"),
		manager("cluster-api-bootstrap-provider-talos", "github.com/siderolabs/cluster-api-bootstrap-provider-talos",
			"siderolabs/cluster-api-talos-controller"),
		manager("cluster-api-control-plane-provider-talos",
			"github.com/siderolabs/cluster-api-control-plane-provider-talos",
			"siderolabs/cluster-api-control-plane-talos-controller"),
	}
}

// TestProgramsOutOfImages bootstraps a cluster whose programs come out of images, of a registry that serves those that
// were built from source. What runs is byte for byte what was built, and nothing is asked for a second time.
func TestProgramsOutOfImages(t *testing.T) {
	c := newCommand(t)
	bin := sourceSet(t, c)
	var requests atomic.Int64
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir())))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	began := time.Now()
	host := strings.TrimPrefix(server.URL, "http://")
	versions := pushAll(t, host, bin)
	releases := serveReleases(t, host, inner, func() { requests.Add(1) })
	t.Logf("images made and pushed in %s", time.Since(began).Round(time.Second))
	requests.Store(0)

	// A cache and records of its own; Go keeps its caches.
	home := t.TempDir()
	registries := filepath.Join(home, "registry.yaml")
	if err := os.WriteFile(registries, fmt.Appendf(nil, "registries: {\"*\": [{url: %q}]}", server.URL),
		0o600); err != nil {
		t.Fatal(err)
	}
	c.env = []string{"CONTROL_PLANE_REPLICAS=1", "LAB_PROGRAMS=images", "REGISTRY_CONFIG=" + registries, "GOCACHE=" +
		goCache(t),
		"XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "XDG_CONFIG_HOME=" + filepath.Join(home, "config")}
	for _, variable := range []struct{ name, module string }{
		{"KUBERNETES_VERSION", "k8s.io/kubernetes"}, {"CAPI_VERSION", "sigs.k8s.io/cluster-api"},
		{"CABPT_VERSION", "github.com/siderolabs/cluster-api-bootstrap-provider-talos"},
		{"CACPPT_VERSION", "github.com/siderolabs/cluster-api-control-plane-provider-talos"},
	} {
		c.env = append(c.env, variable.name+"="+versions[variable.module])
	}
	c.env = append(c.env, releases...)
	if out, err := c.exec(t.Context(), "lab", "build", "--check"); err == nil || requests.Load() != 0 {
		t.Fatalf("before anything was fetched, with %d requests: %s", requests.Load(), out)
	}
	o := c.run(nil, "bootstrap", "--lab")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	t.Logf("bootstrap with images in %s, the lab's programs and start in %s", o.elapsed.Round(time.Second), labTook(o))
	theImagesRun(t, c, bin, versions)
	theReleasesRun(t, c)
	theReleasesAreInstalled(t, c)

	// From the cache, without a registry: a mapping of one's own comes before the released programs.
	server.Close()
	before := requests.Load()
	mapping := filepath.Join(home, "images.yaml")
	if err := os.WriteFile(mapping, []byte(standInMapping), 0o600); err != nil {
		t.Fatal(err)
	}
	c.lab("down")
	c.lab("up", "--lab-images", mapping)
	anImageRunsInPods(t, c)
	for _, words := range [][]string{{"down"}, {"build", "--check"}, {"up"}} {
		c.lab(words...)
	}
	theImagesRun(t, c, bin, versions)
	theReleasesRun(t, c)
	if requests.Load() != before {
		t.Errorf("%d requests for what is cached", requests.Load()-before)
	}
}

// standInMapping has CAPH's Pods run a program out of an image: here the stand-in, which is called as in the lab's own
// mapping.
const standInMapping = `
- image: ghcr.io/syself/caph
  from: configured
  args: ["--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:{port:9440}",
    "--webhook-port={port:9443}", "--webhook-cert-dir={dir:/tmp/k8s-webhook-server/serving-certs}", "--follow={tag}"]
  fidelity: stand-in
`

// anImageRunsInPods waits until CAPH's Pod runs the program out of the image store.
func anImageRunsInPods(t *testing.T, c *command) {
	t.Helper()
	eventually(t, "a process of CAPH's image", time.Minute, func(context.Context) string {
		var status struct {
			labStatus
			Parts []struct{ Name, Detail string }
		}
		c.labGet("/v1/status", &status)
		for _, p := range status.Parts {
			if p.Name == "caph" && !strings.Contains(p.Detail, "from the image ghcr.io/syself/caph:v1.1.8@sha256:") {
				t.Fatalf("lab status says of CAPH: %q", p.Detail)
			}
		}
		for _, process := range status.Processes {
			target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", process.PID))
			if err == nil && strings.Contains(target, "/slipway/images/roots/") && filepath.Base(target) == "manager" {
				return ""
			}
		}
		return fmt.Sprintf("none of %d processes is of the image store", len(status.Processes))
	})
}

// sourceSet is the folder of the programs that were built from source.
func sourceSet(t *testing.T, c *command) string {
	t.Helper()
	out, err := c.exec(t.Context(), "lab", "build")
	found := regexp.MustCompile(`built: (\S+)`).FindAllStringSubmatch(out, -1)
	if err != nil || found == nil {
		t.Fatalf("lab build: %v\n%s", err, out)
	}
	all := t.TempDir()
	for _, folder := range found {
		files, err := filepath.Glob(filepath.Join(folder[1], "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.Symlink(file, filepath.Join(all, filepath.Base(file))); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	return all
}

func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// pushAll makes an image of each program and puts it into the registry. It returns the versions by module.
func pushAll(t *testing.T, host, bin string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, p := range inImages() {
		info, err := buildinfo.ReadFile(filepath.Join(bin, p.file))
		if err != nil {
			t.Fatal(err)
		}
		version := info.Main.Version
		versions[p.module] = version
		if p.tag != nil {
			version = p.tag(version)
		}
		ref, err := name.ParseReference(host + "/" + p.image + ":" + version)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, p.make(t, bin)); err != nil {
			t.Fatalf("push %s: %v", ref, err)
		}
	}
	return versions
}

// make makes the image of a program: a layer with it, and one with what the image runs it with.
func (p inImage) make(t *testing.T, bin string) v1.Image {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(bin, p.file))
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH,
		Config: v1.Config{Entrypoint: p.entrypoint}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{"go-runner": []byte("runs another program"), p.path: data} {
		var layer bytes.Buffer
		w := tar.NewWriter(&layer)
		header := &tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
		}, tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.AppendLayers(image, made); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// labTook is how long the lab took, with its programs.
func labTook(o outcome) time.Duration {
	var began, ended time.Time
	for _, e := range o.events {
		if e.Step == "lab" && began.IsZero() {
			began = e.Time
		}
		if e.Step == "lab" {
			ended = e.Time
		}
	}
	return ended.Sub(began).Round(time.Second)
}

// executable is the name of the file that a process runs; empty: it has ended.
func executable(pid int) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// theImagesRun compares what runs with what was built, and with what the lab says about it.
func theImagesRun(t *testing.T, c *command, bin string, versions map[string]string) {
	t.Helper()
	var status struct {
		labStatus
		Parts []struct{ Name, Fidelity, Detail string }
	}
	eventually(t, "processes of all programs", time.Minute, func(context.Context) string {
		status.Processes = nil
		c.labGet("/v1/status", &status)
		for _, p := range inImages() {
			if !slices.ContainsFunc(status.Processes, func(q process) bool { return executable(q.PID) == p.file }) {
				return "none runs " + p.file
			}
		}
		return ""
	})
	details := map[string]string{}
	for _, p := range status.Parts {
		details[p.Name] = p.Detail
	}
	for _, p := range inImages() {
		built, err := os.ReadFile(filepath.Join(bin, p.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range status.Processes {
			if executable(q.PID) != p.file {
				continue
			}
			if is, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", q.PID)); err != nil || !bytes.Equal(is, built) {
				t.Errorf("%s (process %d) is not the program that was built: %v", p.file, q.PID, err)
			}
		}
		part := map[string]string{"server": "etcd"}[p.file]
		if part == "" {
			part = filepath.Base(p.image)
		}
		tag := versions[p.module]
		if p.tag != nil {
			tag = p.tag(tag)
		}
		if want := p.image + ":" + tag + "@sha256:"; !strings.Contains(details[part], want) {
			t.Errorf("lab status says of %s: %q, want %q", part, details[part], want)
		}
	}
	var info struct {
		Kubernetes string
		Versions   map[string]string
	}
	c.labGet("/v1/info", &info)
	if info.Kubernetes != versions["k8s.io/kubernetes"] ||
		info.Versions["CACPPT"] != versions["github.com/siderolabs/cluster-api-control-plane-provider-talos"] {
		said, _ := json.Marshal(info)
		t.Errorf("the lab offers %s", said)
	}
}
