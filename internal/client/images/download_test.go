package images

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// layerSize is large enough for a layer to be cut.
const layerSize = 300_000

// pushLarge puts an image with one large layer into the registry, and returns the layer.
func pushLarge(t *testing.T, r *testRegistry) v1.Descriptor {
	t.Helper()
	layer := layerOf(t, plain("manager", incompressible(layerSize)))
	r.push("one:v1", imageOf(t, v1.Config{Entrypoint: []string{"/manager"}}, layer))
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	size, err := layer.Size()
	if err != nil {
		t.Fatal(err)
	}
	return v1.Descriptor{Digest: digest, Size: size}
}

const one = "registry.k8s.io/one:v1"

// cut has the registry close the connection after some bytes of the layer, in the first requests for it.
func cut(layer v1.Descriptor, after, times int64) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	var cuts atomic.Int64
	return func(w http.ResponseWriter, q *http.Request, inner http.Handler) bool {
		if !strings.HasSuffix(q.URL.Path, layer.Digest.String()) || cuts.Add(1) > times {
			return false
		}
		inner.ServeHTTP(&shortWriter{w, after}, q)
		panic(http.ErrAbortHandler)
	}
}

// shortWriter passes so many bytes on.
type shortWriter struct {
	http.ResponseWriter
	left int64
}

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(int64(len(p)), w.left)
	w.left -= n
	if _, err := w.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	if n > 0 {
		w.ResponseWriter.(http.Flusher).Flush()
	}
	return len(p), nil
}

func TestATruncatedLayerIsContinued(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	r.tamper(cut(layer, 100_000, 1))
	image, err := r.store().Fetch(t.Context(), one, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var ranges []string
	for i, path := range r.requests {
		if strings.HasSuffix(path, layer.Digest.String()) {
			ranges = append(ranges, r.headers[i].Get("Range"))
		}
	}
	if len(ranges) != 2 || ranges[0] != "" || !strings.HasPrefix(ranges[1], "bytes=1") {
		t.Errorf("ranges were %q", ranges)
	}
	data, err := os.ReadFile(filepath.Join(image.Root, "manager"))
	if err != nil || string(data) != incompressible(layerSize) {
		t.Errorf("the program has %d bytes, %v", len(data), err)
	}
}

func TestATruncatedLayerIsNeverUsed(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	r.tamper(cut(layer, 20_000, 1_000))
	s := r.store()
	_, err := s.Fetch(t.Context(), one, nil)
	if err == nil || !strings.Contains(err.Error(), "bytes were received, which are kept: the next attempt continues") {
		t.Fatalf("error is %v", err)
	}
	if exists(s.blobPath(layer.Digest)) {
		t.Error("a part of the layer has the name of the whole")
	}
	if entries, _ := os.ReadDir(filepath.Join(s.Dir, "roots")); len(entries) > 0 {
		t.Errorf("something was unpacked: %v", entries)
	}
	partial, err := os.Stat(s.blobPath(layer.Digest) + ".partial")
	if err != nil || partial.Size() == 0 || partial.Size() >= layer.Size {
		t.Fatalf("the part that was received: %v, %v", partial, err)
	}

	// The next pull, of another process for example, continues.
	var sent atomic.Int64
	r.tamper(func(w http.ResponseWriter, q *http.Request, inner http.Handler) bool {
		counted := &countingWriter{ResponseWriter: w}
		inner.ServeHTTP(counted, q)
		if strings.HasSuffix(q.URL.Path, layer.Digest.String()) {
			sent.Add(counted.n)
		}
		return true
	})
	again := &Store{Dir: s.Dir, LockFile: s.LockFile, Registries: s.Registries, Platform: linux, Keychain: s.Keychain}
	if _, err := again.Fetch(t.Context(), one, nil); err != nil {
		t.Fatal(err)
	}
	// The handler may return after its client has everything.
	for end := time.Now().Add(5 * time.Second); sent.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if sent.Load() != layer.Size-partial.Size() {
		t.Errorf("%d bytes of the layer were sent again, want %d", sent.Load(), layer.Size-partial.Size())
	}
}

type countingWriter struct {
	http.ResponseWriter
	n int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return w.ResponseWriter.Write(p)
}

// What an earlier pull left may be damaged, or of a registry that served something else.
func TestAWrongPartIsFetchedAnew(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	for name, part := range map[string]string{
		"other bytes": strings.Repeat("x", 1000), "too long": strings.Repeat("x", int(layer.Size)+1),
		"all, and wrong": strings.Repeat("x", int(layer.Size)),
	} {
		s := r.store()
		path := s.blobPath(layer.Digest)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".partial", []byte(part), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(t.Context(), one, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrongDigestsAreRefused(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	change := func(part string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(w http.ResponseWriter, q *http.Request, inner http.Handler) bool {
			if !strings.Contains(q.URL.Path, part) || q.Method != http.MethodGet {
				return false
			}
			inner.ServeHTTP(&flippingWriter{ResponseWriter: w}, q)
			return true
		}
	}
	s := r.store()
	r.tamper(change(layer.Digest.String()))
	_, err := s.Fetch(t.Context(), one, nil)
	if err == nil || !strings.Contains(err.Error(), "in place of "+layer.Digest.String()+": it is refused") {
		t.Errorf("a changed layer: %v", err)
	}
	for _, suffix := range []string{"", ".partial"} {
		if exists(s.blobPath(layer.Digest) + suffix) {
			t.Errorf("the changed layer is in the cache%s", suffix)
		}
	}
	manifest, err := os.ReadFile(s.LockFile)
	if err != nil {
		t.Fatal(err)
	}
	digest := strings.Fields(string(manifest[strings.LastIndex(string(manifest), "sha256:"):]))[0]
	r.tamper(change("/manifests/"))
	_, err = r.store().Fetch(t.Context(), "registry.k8s.io/one@"+digest, nil)
	if err == nil || !strings.Contains(err.Error(), "it is refused") {
		t.Errorf("a changed manifest: %v", err)
	}
}

// flippingWriter changes the first byte of an answer.
type flippingWriter struct {
	http.ResponseWriter
	done bool
}

func (w *flippingWriter) Write(p []byte) (int, error) {
	if !w.done && len(p) > 0 {
		w.done = true
		p = append([]byte{p[0] ^ 1}, p[1:]...)
	}
	return w.ResponseWriter.Write(p)
}

// A layer that was damaged in the cache is not unpacked, and fetched again afterwards.
func TestADamagedCacheIsNotUsed(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	s := r.store()
	image, err := s.Fetch(t.Context(), one, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.blobPath(layer.Digest))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(s.blobPath(layer.Digest), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(image.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), one, nil); err == nil {
		t.Error("a damaged layer was unpacked")
	}
	if exists(image.Root) {
		t.Error("the damaged layer left a folder")
	}
	if err := os.Remove(s.blobPath(layer.Digest)); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), one, nil); err != nil {
		t.Errorf("after that: %v", err)
	}
	manifest := s.blobPath(v1.Hash{Algorithm: "sha256", Hex: strings.TrimPrefix(image.Digest, "sha256:")})
	if err := os.WriteFile(manifest, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), one, nil); err != nil {
		t.Errorf("with a damaged manifest: %v", err)
	}
}

// Neither a configuration nor a layer is used whose file in the cache is another valid one.
func TestTheCacheIsVerified(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	s := r.store()
	image, err := s.Fetch(t.Context(), one, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := s.cachedManifest(image.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config := s.blobPath(m.Config.Digest)
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, strings.ReplaceAll(string(data), "/manager", "/another"))
	if _, cached, err := s.Cached(one); cached || err != nil {
		t.Errorf("with another configuration it is cached: %v", err)
	}
	if again, err := s.Fetch(t.Context(), one, nil); err != nil || again.Config.Entrypoint[0] != "/manager" {
		t.Errorf("fetched again: %+v, %v", again, err)
	}
	// The same files, compressed in another way.
	packed, err := os.Open(s.blobPath(layer.Digest))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	plain, err := uncompress(packed)
	if err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	w, err := gzip.NewWriterLevel(&other, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.blobPath(layer.Digest), other.String())
	if err := os.RemoveAll(image.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), one, nil); err == nil || !strings.Contains(err.Error(), "in the cache it has the digest") {
		t.Errorf("with another layer: %v", err)
	}
	if _, err := s.Fetch(t.Context(), one, nil); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

// The configuration names the digest of what a layer unpacks to.
func TestALayerUnpacksToWhatTheConfigurationSays(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	s := r.store()
	if _, err := s.Fetch(t.Context(), one, nil); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = s.unpackLayer(t.Context(), &unpacker{root: root, most: imageBounds()}, layer.Digest, hashOf([]byte("something else")))
	if err == nil || !strings.Contains(err.Error(), "uncompressed it has the digest") {
		t.Errorf("error is %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
