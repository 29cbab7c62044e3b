package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals"
)

// theRegistry serves images in this process.
type theRegistry struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	change   func(http.ResponseWriter, *http.Request) bool // true: it has answered
}

func (r *theRegistry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

func serveImages(t *testing.T, configurations ...config.Config) *theRegistry {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("images hold programs for Linux")
	}
	r := &theRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.requests++
		change := r.change
		r.mu.Unlock()
		if change == nil || !change(w, q) {
			inner.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(r.Close)
	for _, c := range configurations {
		for _, p := range inSets() {
			r.push(t, p, p.reference(c))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = 0
	return r
}

// push makes the image of a program, whose content is its reference.
func (r *theRegistry) push(t *testing.T, p upstreamProgram, reference string) {
	t.Helper()
	path, entrypoint := strings.TrimPrefix(p.path, "/"), []string{"/go-runner"}
	if path == "" {
		path, entrypoint = "manager", []string{"/manager"}
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(reference))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, reference); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH,
		Config: v1.Config{Entrypoint: entrypoint}})
	if err == nil {
		image, err = mutate.AppendLayers(image, made)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ = strings.Cut(reference, "/")
	ref, err := name.ParseReference(strings.TrimPrefix(r.URL, "http://") + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
}

// builderOf is a builder whose images are those of a registry, in folders of its own.
func (r *theRegistry) builderOf(t *testing.T, c config.Config, home string) *builder {
	t.Helper()
	source, err := findModule(mustWorkDir(t))
	if err != nil || source == "" {
		t.Fatalf("the lab's source: %q, %v", source, err)
	}
	b := &builder{source: source, cache: filepath.Join(home, "lab"), env: os.Environ(), lab: filepath.Join(home, "state", "lab")}
	b.sets = &imageSets{config: c, dir: filepath.Join(home, "lab-images"), judgeAfter: judgeAfter,
		store: &images.Store{Dir: filepath.Join(home, "images"), LockFile: filepath.Join(home, "images.lock"),
			Registries: images.Registries{images.AnyRegistry: {{URL: r.URL}}}, Keychain: authn.NewMultiKeychain()},
		modules: func(context.Context, []string) error { return nil }}
	b.released = &originals.Cache{Dir: filepath.Join(home, "lab-originals"), Store: b.sets.store, Within: 5 * time.Second}
	if err := os.MkdirAll(b.lab, 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWorkDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func with(change func(*config.Config)) config.Config {
	c := config.Defaults()
	change(&c)
	return c
}

// Every program has one image for a configuration, at exactly its version.
func TestImagesOfPrograms(t *testing.T) {
	c := with(func(c *config.Config) {
		c.KubernetesVersion, c.CAPHVersion = "v1.33.13", "v1.0.12"
	})
	var got []string
	for _, p := range upstreamPrograms() {
		got = append(got, p.reference(c))
	}
	want := []string{
		"registry.k8s.io/etcd:3.5.16-0",
		"registry.k8s.io/kube-apiserver:v1.33.13",
		"registry.k8s.io/kube-controller-manager:v1.33.13",
		"registry.k8s.io/kube-scheduler:v1.33.13",
		"registry.k8s.io/cluster-api/cluster-api-controller:v1.13.6",
		"ghcr.io/siderolabs/cluster-api-talos-controller:v0.6.12",
		"ghcr.io/siderolabs/cluster-api-control-plane-talos-controller:v0.5.13",
		"ghcr.io/syself/caph:v1.0.12",
		"quay.io/jetstack/cert-manager-controller:v1.21.1",
		"quay.io/jetstack/cert-manager-webhook:v1.21.1",
		"quay.io/jetstack/cert-manager-cainjector:v1.21.1",
		"docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.39.0",
		"ghcr.io/siderolabs/talos-cloud-controller-manager:v1.12.0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("references are\n%s", strings.Join(got, "\n"))
	}
	if unknown := talosCCMOfChart["0.0.0"]; unknown != "" {
		t.Errorf("an unknown chart has the program %q", unknown)
	}
	// etcd's version is that of the lab's source, so that both ways run the same.
	versions, err := SourceVersions(mustWorkDir(t))
	if err != nil || !slices.Contains(versions, Version{Name: "etcd", Version: etcdVersion}) {
		t.Errorf("etcd of images is %s, of source: %v, %v", etcdVersion, versions, err)
	}
}

// Sets of two versions lie side by side, share what is the same, and are fetched once.
func TestSetsOutOfImages(t *testing.T) {
	one := with(func(c *config.Config) { c.LabPrograms = config.LabProgramsImages })
	two := with(func(c *config.Config) {
		c.LabPrograms, c.KubernetesVersion = config.LabProgramsImages, "v1.33.13"
	})
	r := serveImages(t, one, two)
	home := t.TempDir()
	var modules []string
	bins := map[string]bool{}
	for _, c := range []config.Config{one, two, one} {
		b := r.builderOf(t, c, home)
		b.sets.modules = func(_ context.Context, m []string) error { modules = m; return nil }
		bin, err := b.programs(t.Context(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		bins[bin] = true
		for _, p := range inSets() {
			data, err := os.ReadFile(filepath.Join(bin, p.file))
			if err != nil || string(data) != p.reference(c) {
				t.Errorf("%s is %q, %v", p.file, data, err)
			}
		}
		if found, missing, err := b.built(t.Context()); found != bin || err != nil {
			t.Errorf("built: %q %q, %v", found, missing, err)
		}
	}
	if len(bins) != 2 {
		t.Errorf("sets are %v", bins)
	}
	want := []string{"sigs.k8s.io/cluster-api@v1.13.6", "github.com/siderolabs/cluster-api-bootstrap-provider-talos@v0.6.12",
		"github.com/siderolabs/cluster-api-control-plane-provider-talos@v0.5.13"}
	if !slices.Equal(modules, want) {
		t.Errorf("modules of manifests are %v", modules)
	}

	// A prune keeps the images of the set that stays.
	b := r.builderOf(t, one, home)
	if err := b.prune(t.Context(), []string{b.sets.bin()}, quiet); err != nil {
		t.Fatal(err)
	}
	before := r.count()
	if _, err := b.programs(t.Context(), quiet); err != nil || r.count() != before {
		t.Errorf("after the prune: %v, %d requests", err, r.count()-before)
	}
	if bin, err := r.builderOf(t, two, home).sets.ready(); bin != "" || err != nil {
		t.Errorf("the pruned set is there: %q, %v", bin, err)
	}
	roots, _ := filepath.Glob(filepath.Join(home, "images", "roots", "*"))
	roots = slices.DeleteFunc(roots, func(path string) bool { return strings.HasSuffix(path, ".lock") })
	if len(roots) != len(inSets()) {
		t.Errorf("unpacked images are %v", roots)
	}

	// The operator accepts other digests: the set is fetched anew.
	lock := filepath.Join(home, "images.lock")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if _, err := b.programs(t.Context(), quiet); err != nil || r.count() == before {
		t.Errorf("after the records were removed: %v, %d requests", err, r.count()-before)
	}
}

func TestAutoUsesWhatIsThere(t *testing.T) {
	auto := config.Defaults()
	if auto.LabPrograms != config.LabProgramsAuto {
		t.Fatalf("the default is %s", auto.LabPrograms)
	}
	r := serveImages(t, auto)
	home := t.TempDir()
	b := r.builderOf(t, auto, home)
	source, _, err := b.bin(t.Context(), mustTools(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if found, missing, err := b.built(t.Context()); found != "" || missing == "" || err != nil {
		t.Errorf("with nothing built: %q %q, %v", found, missing, err)
	}
	writeFile(t, filepath.Join(source, "kube-apiserver"), "program")
	if bin, err := b.programs(t.Context(), quiet); bin != source || err != nil || r.count() != 0 {
		t.Errorf("with a set from source: %s, %v, %d requests", bin, err, r.count())
	}
	images := with(func(c *config.Config) { c.LabPrograms = config.LabProgramsImages })
	fetched, err := r.builderOf(t, images, home).programs(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	before := r.count()
	if bin, err := b.programs(t.Context(), quiet); bin != fetched || err != nil || r.count() != before {
		t.Errorf("with both: %s, %v", bin, err)
	}

	// A lab stays with what it ran.
	if err := b.remember(source); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(b.lab, "state.json"), "{}")
	if bin, err := b.programs(t.Context(), quiet); bin != source || err != nil {
		t.Errorf("of a lab that ran programs from source: %s, %v", bin, err)
	}
	if err := os.Remove(filepath.Join(b.lab, programsFile)); err != nil { // of an earlier release
		t.Fatal(err)
	}
	if b.mode() != config.LabProgramsSource {
		t.Errorf("a lab of an earlier release runs programs of %s", b.mode())
	}
	if err := b.remember(fetched); err != nil {
		t.Fatal(err)
	}
	if bin, err := b.programs(t.Context(), quiet); bin != fetched || err != nil {
		t.Errorf("of a lab that ran programs of images: %s, %v", bin, err)
	}
	if err := os.RemoveAll(filepath.Dir(source)); err != nil {
		t.Fatal(err)
	}
	other := r.builderOf(t, auto, t.TempDir())
	if bin, err := other.programs(t.Context(), quiet); err != nil || !other.sets.has(bin) {
		t.Errorf("with nothing there and a registry: %s, %v", bin, err)
	}
}

// Whatever goes wrong with images, auto builds from source, soon, and says why.
func TestAutoFallsBackToSource(t *testing.T) {
	for name, test := range map[string]struct {
		change func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		}, "403"},
		"silent": {func(_ http.ResponseWriter, q *http.Request) bool {
			<-q.Context().Done()
			return true
		}, "registry.k8s.io/etcd:3.5.16-0"},
		"no image of this version": {func(w http.ResponseWriter, q *http.Request) bool {
			if strings.Contains(q.URL.Path, "/kube-scheduler/") {
				w.WriteHeader(http.StatusNotFound)
				return true
			}
			return false
		}, "kube-scheduler"},
		"manifests without layers": {func(_ http.ResponseWriter, q *http.Request) bool {
			if strings.Contains(q.URL.Path, "/blobs/") {
				<-q.Context().Done()
				return true
			}
			return false
		}, "its configuration: from http://127.0.0.1:"},
		"slow layers": {func(w http.ResponseWriter, q *http.Request) bool {
			for range 100 {
				if !strings.Contains(q.URL.Path, "/blobs/") || q.Context().Err() != nil {
					break
				}
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush()
				time.Sleep(50 * time.Millisecond)
			}
			return strings.Contains(q.URL.Path, "/blobs/")
		}, "the build from source is faster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serveImages(t, config.Defaults())
			r.mu.Lock()
			r.change = test.change
			r.mu.Unlock()
			b := r.builderOf(t, config.Defaults(), t.TempDir())
			if name != "silent" {
				b.sets.store.Patience = 300 * time.Millisecond
			}
			if name == "slow layers" {
				b.sets.judgeAfter = 500 * time.Millisecond
			}
			source, _, err := b.bin(t.Context(), mustTools(t, b))
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			began := time.Now()
			bin, err := b.programs(t.Context(), func(format string, args ...any) {
				said = append(said, fmt.Sprintf(format, args...))
				if strings.Contains(format, "from source, because") { // in place of a build of minutes
					writeFile(t, filepath.Join(source, "kube-apiserver"), "program")
				}
			})
			took, all := time.Since(began), strings.Join(said, "\n")
			if err != nil || bin != source || !strings.Contains(all, test.want) || took > time.Minute {
				t.Errorf("%s after %s, %v\n%s", bin, took, err, all)
			}
		})
	}
}

// With images asked for there is no other way, and an error says what is wrong.
func TestImagesAreNotReplacedBySource(t *testing.T) {
	c := with(func(c *config.Config) { c.LabPrograms = config.LabProgramsImages })
	r := serveImages(t, c)
	b := r.builderOf(t, c, t.TempDir())
	if _, err := b.programs(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.sets.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.sets.store.Dir); err != nil {
		t.Fatal(err)
	}
	apiserver := inSets()[1]
	other := apiserver
	other.path = "/another" // another content, under the same tag
	r.push(t, other, apiserver.reference(c))
	_, err := b.programs(t.Context(), quiet)
	if err == nil || !strings.Contains(err.Error(), "at its first use") || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("a changed tag: %v", err)
	}
	r.Close()
	if _, err := b.programs(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), r.URL) {
		t.Errorf("without a registry: %v", err)
	}
}

func TestConfigurationOfRegistries(t *testing.T) {
	dir := t.TempDir()
	if p, err := NewPrograms(config.Defaults(), dir, dir); err != nil || p.Registries != nil {
		t.Errorf("without a file: %+v, %v", p, err)
	}
	writeFile(t, filepath.Join(dir, "registry.yaml"), "registries: {ghcr.io: [{url: 'https://mirror'}]}")
	if p, err := NewPrograms(config.Defaults(), "/elsewhere", dir); err != nil || len(p.Registries["ghcr.io"]) != 1 {
		t.Errorf("beside the configuration: %+v, %v", p, err)
	}
	c := with(func(c *config.Config) { c.RegistryConfig = "other.yaml" })
	if _, err := NewPrograms(c, "/elsewhere", dir); err == nil || !strings.Contains(err.Error(), "/elsewhere/other.yaml") {
		t.Errorf("a named file that does not exist: %v", err)
	}
}
