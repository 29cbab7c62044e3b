package images

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const manager = "registry.k8s.io/cluster-api/cluster-api-controller:v1.10.10"

// ofManager is an image as that of a provider.
func ofManager(t *testing.T, content string) v1.Image {
	return imageOf(t, ofManagerConfig(), layerOf(t, plain("manager", content)))
}

func ofManagerConfig() v1.Config {
	return v1.Config{Entrypoint: []string{"/manager"}, Cmd: []string{"--leader-elect"}}
}

func TestFetchCacheAndProgram(t *testing.T) {
	r := newRegistry(t)
	r.push("cluster-api/cluster-api-controller:v1.10.10", ofManager(t, "the manager"))
	s := r.store()
	if _, cached, err := s.Cached(manager); cached || err != nil {
		t.Fatalf("cached before it was fetched: %v, %v", cached, err)
	}
	image, err := s.Fetch(t.Context(), manager, nil)
	if err != nil {
		t.Fatal(err)
	}
	program, err := image.Program("")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(program); err != nil || string(data) != "the manager" {
		t.Fatalf("the program has %q, %v", data, err)
	}
	if len(r.asked("/blobs/")) != 2 {
		t.Error("want a request for the configuration and one for the layer")
	}

	// From the cache, also in another process, without a request.
	r.server.Close()
	for range 2 {
		again, err := s.Fetch(t.Context(), manager, nil)
		if err != nil || again.Root != image.Root || again.Digest != image.Digest || again.Config.Cmd == nil {
			t.Fatalf("from the cache: %+v, %v", again, err)
		}
		s = &Store{Dir: s.Dir, LockFile: s.LockFile, Registries: s.Registries, Platform: linux, Keychain: s.Keychain}
	}
}

// Two versions lie side by side, and what they share is fetched once.
func TestVersionsSideBySide(t *testing.T) {
	r := newRegistry(t)
	base := layerOf(t, plain("etc/base", incompressible(4000)))
	for _, version := range []string{"v1.32.2", "v1.33.13"} {
		r.push("kube-apiserver:"+version, imageOf(t, v1.Config{Entrypoint: []string{"/go-runner"}}, base,
			layerOf(t, plain("go-runner", "runner"), plain("usr/local/bin/kube-apiserver", version))))
	}
	s := r.store()
	found := map[string]string{}
	for _, version := range []string{"v1.32.2", "v1.33.13"} {
		r.asked("")
		image, err := s.Fetch(t.Context(), "registry.k8s.io/kube-apiserver:"+version, nil)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.Program("/usr/local/bin/kube-apiserver")
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil || string(data) != version {
			t.Errorf("the program of %s is %q, %v", version, data, err)
		}
		found[file] = image.Digest
	}
	if blobs := r.asked("/blobs/"); len(blobs) != 2 || len(found) != 2 {
		t.Errorf("for the second version these blobs were fetched: %v; programs %v", blobs, found)
	}
}

func TestIndexPicksThePlatform(t *testing.T) {
	r := newRegistry(t)
	other := imageOf(t, v1.Config{}, layerOf(t, plain("manager", "arm")))
	other, err := mutate.ConfigFile(other, &v1.ConfigFile{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: ofManager(t, "amd"), Descriptor: v1.Descriptor{Platform: &linux}})
	ref, err := name.ParseReference(r.host() + "/cluster-api/cluster-api-controller:v1.10.10")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	s := r.store()
	image, err := s.Fetch(t.Context(), manager, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := index.Digest()
	if data, err := os.ReadFile(filepath.Join(image.Root, "manager")); string(data) != "amd" || err != nil ||
		image.Digest != want.String() || image.Manifest == image.Digest {
		t.Errorf("%q of %+v, %v", data, image, err)
	}
	r.tamper(func(w http.ResponseWriter, q *http.Request, inner http.Handler) bool {
		if !strings.HasSuffix(q.URL.Path, "/manifests/"+image.Manifest) {
			return false
		}
		inner.ServeHTTP(&flippingWriter{ResponseWriter: w}, q)
		return true
	})
	if _, err := r.store().Fetch(t.Context(), manager, nil); err == nil ||
		!strings.Contains(err.Error(), "in place of "+image.Manifest+": it is refused") {
		t.Errorf("another manifest than the index names: %v", err)
	}
	r.tamper(nil)
	s.Platform = v1.Platform{OS: "linux", Architecture: "riscv64"}
	if _, err := s.Fetch(t.Context(), manager, nil); err == nil || !strings.Contains(err.Error(), "no image for linux/riscv64") {
		t.Errorf("for another platform: %v", err)
	}
	r.push("one:v1", ofManager(t, "amd"))
	if _, err := s.Fetch(t.Context(), "registry.k8s.io/one:v1", nil); err == nil ||
		!strings.Contains(err.Error(), "for linux/amd64, and this machine runs linux/riscv64") {
		t.Errorf("an image of another platform: %v", err)
	}
}

func TestChangedTagIsRefusedUntilAccepted(t *testing.T) {
	r := newRegistry(t)
	path := "cluster-api/cluster-api-controller:v1.10.10"
	r.push(path, ofManager(t, "first"))
	s := r.store()
	first, err := s.Fetch(t.Context(), manager, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.push(path, ofManager(t, "second"))
	// While it is cached nothing is asked.
	if again, err := s.Fetch(t.Context(), manager, nil); err != nil || again.Digest != first.Digest {
		t.Fatalf("from the cache: %v", err)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	_, err = s.Fetch(t.Context(), manager, nil)
	changed, ok := errors.AsType[*ChangedError](err)
	if !ok || changed.Was != first.Digest || changed.Line != 3 ||
		!strings.Contains(err.Error(), "remove line 3 of "+s.LockFile) {
		t.Fatalf("error is %v", err)
	}
	if len(r.asked("/blobs/")) != 2 { // those of the first
		t.Error("blobs of the refused image were fetched")
	}
	data, err := os.ReadFile(s.LockFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	if err := os.WriteFile(s.LockFile, []byte(strings.Join(slices.Delete(lines, 2, 3), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if second, err := s.Fetch(t.Context(), manager, nil); err != nil || second.Digest == first.Digest {
		t.Errorf("after it was accepted: %+v, %v", second, err)
	}
}

func TestADigestIsItsOwnRecord(t *testing.T) {
	r := newRegistry(t)
	image := ofManager(t, "first")
	r.push("one:v1", image)
	digest, _ := image.Digest()
	s := r.store()
	reference := "registry.k8s.io/one@" + digest.String()
	if got, err := s.Fetch(t.Context(), reference, nil); err != nil || got.Digest != digest.String() {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := os.Stat(s.LockFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a lock file was written: %v", err)
	}
}

func TestTwoAtOnceFetchOnce(t *testing.T) {
	r := newRegistry(t)
	r.push("cluster-api/cluster-api-controller:v1.10.10", ofManager(t, incompressible(100_000)))
	slow := func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if strings.Contains(q.URL.Path, "/blobs/") {
			time.Sleep(150 * time.Millisecond)
		}
		return false
	}
	r.tamper(slow)
	one := r.store()
	two := &Store{Dir: one.Dir, LockFile: one.LockFile, Registries: one.Registries, Platform: linux, Keychain: one.Keychain}
	var (
		wg    sync.WaitGroup
		roots = make([]string, 4)
	)
	for i, s := range []*Store{one, two, one, two} {
		wg.Go(func() {
			image, err := s.Fetch(t.Context(), manager, nil)
			if err != nil {
				t.Error(err)
			}
			roots[i] = image.Root
		})
	}
	wg.Wait()
	if roots[0] == "" || len(slices.Compact(roots)) != 1 {
		t.Errorf("roots are %v", roots)
	}
	if blobs := r.asked("/blobs/"); len(blobs) != 2 {
		t.Errorf("blobs were fetched more than once: %v", blobs)
	}
}

func TestUnauthorisedAndCredentials(t *testing.T) {
	r := newRegistry(t)
	r.push("private:v1", ofManager(t, "private"))
	r.tamper(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		user, password, _ := q.BasicAuth()
		if user == "reader" && password == "secret-of-a-test" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	s := r.store()
	_, err := s.Fetch(t.Context(), "registry.k8s.io/private:v1", nil)
	if err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "docker login "+r.host()) {
		t.Errorf("without credentials: %v", err)
	}
	// As docker login leaves them.
	dir := t.TempDir()
	config := `{"auths": {"` + r.host() + `": {"auth": "cmVhZGVyOnNlY3JldC1vZi1hLXRlc3Q="}}}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	s = r.store()
	s.Keychain = authn.DefaultKeychain
	if _, err := s.Fetch(t.Context(), "registry.k8s.io/private:v1", nil); err != nil {
		t.Errorf("with Docker's configuration: %v", err)
	}
}

func TestReferencesNeedAVersion(t *testing.T) {
	s := newRegistry(t).store()
	for reference, want := range map[string]string{
		"registry.k8s.io/etcd":    "names no version",
		"registry.k8s.io/ETCD:x":  "is not the reference of an image",
		"registry.k8s.io/none:v1": "404",
	} {
		if _, err := s.Fetch(t.Context(), reference, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", reference, err)
		}
	}
}

func TestASilentRegistryIsGivenUp(t *testing.T) {
	r := newRegistry(t)
	r.push("cluster-api/cluster-api-controller:v1.10.10", ofManager(t, incompressible(100_000)))
	for _, part := range []string{"/v2/", "/manifests/", "/blobs/"} {
		r.tamper(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
			if !strings.Contains(q.URL.Path, part) {
				return false
			}
			select {
			case <-q.Context().Done():
			case <-time.After(10 * time.Second):
			}
			return true
		})
		s := r.store()
		s.Patience = 200 * time.Millisecond
		began := time.Now()
		_, err := s.Fetch(t.Context(), manager, nil)
		if err == nil || !strings.Contains(err.Error(), "silent for 200ms") && !strings.Contains(err.Error(), "timeout") ||
			time.Since(began) > 9*time.Second {
			t.Errorf("%s: after %s: %v", part, time.Since(began), err)
		}
	}
}

func TestARegistryThatStopsInALayerIsGivenUp(t *testing.T) {
	r := newRegistry(t)
	layer := pushLarge(t, r)
	r.tamper(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(q.URL.Path, layer.Digest.String()) {
			return false
		}
		_, _ = w.Write([]byte("a part"))
		w.(http.Flusher).Flush()
		select {
		case <-q.Context().Done():
		case <-time.After(10 * time.Second):
		}
		return true
	})
	s := r.store()
	s.Patience = 200 * time.Millisecond
	began := time.Now()
	if _, err := s.Fetch(t.Context(), one, nil); err == nil || !strings.Contains(err.Error(), "it was silent for 200ms") ||
		time.Since(began) > 9*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestAnInterruptIsNoFailureOfTheRegistry(t *testing.T) {
	r := newRegistry(t)
	r.push("one:v1", ofManager(t, "x"))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	r.tamper(func(http.ResponseWriter, *http.Request, http.Handler) bool { cancel(stop); return false })
	if _, err := r.store().Fetch(ctx, "registry.k8s.io/one:v1", nil); !errors.Is(err, stop) {
		t.Errorf("error is %v", err)
	}
}
