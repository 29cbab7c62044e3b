package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
)

// testRegistry is a registry in this process, whose answers a test can change.
type testRegistry struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	requests []string // GET requests but for /v2/
	headers  []http.Header
	change   func(http.ResponseWriter, *http.Request, http.Handler) bool // true: it has answered
}

func newRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{t: t}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		if q.Method == http.MethodGet && q.URL.Path != "/v2/" {
			r.requests = append(r.requests, q.URL.Path)
			r.headers = append(r.headers, q.Header.Clone())
		}
		change := r.change
		r.mu.Unlock()
		if change == nil || !change(w, q, inner) {
			inner.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(r.server.Close)
	return r
}

func (r *testRegistry) host() string { return strings.TrimPrefix(r.server.URL, "http://") }

func (r *testRegistry) tamper(change func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change = change
}

// asked returns the requests since the last call whose path contains a word.
func (r *testRegistry) asked(word string) (paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range r.requests {
		if strings.Contains(path, word) {
			paths = append(paths, path)
		}
	}
	r.requests, r.headers = nil, nil
	return paths
}

// push puts an image at a path of the registry.
func (r *testRegistry) push(path string, image v1.Image) {
	r.t.Helper()
	ref, err := name.ParseReference(r.host() + "/" + path)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		r.t.Fatal(err)
	}
}

// store is a new store that gets everything from this registry.
func (r *testRegistry) store() *Store {
	dir := r.t.TempDir()
	return &Store{Dir: filepath.Join(dir, "images"), LockFile: filepath.Join(dir, "images.lock"),
		Registries: Registries{AnyRegistry: {{URL: r.server.URL}}}, Keychain: authn.NewMultiKeychain(),
		Platform: linux, Patience: 5 * time.Second}
}

var linux = v1.Platform{OS: "linux", Architecture: "amd64"}

// file is an entry of a layer; a nil header is a plain file.
type file struct {
	tar.Header
	content string
}

func plain(name, content string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, content}
}

// layerOf makes a layer.
func layerOf(t *testing.T, files ...file) v1.Layer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		f.Size = int64(len(f.content))
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// imageOf makes an image of layers for linux/amd64.
func imageOf(t *testing.T, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: linux.OS, Architecture: linux.Architecture,
		Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layers...); err != nil {
		t.Fatal(err)
	}
	return image
}

// incompressible returns a text that a layer cannot make short.
func incompressible(n int) string {
	var out strings.Builder
	seed := uint64(1)
	for out.Len() < n {
		seed = seed*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&out, "%016x", seed^seed>>29)
	}
	return out.String()[:n]
}
