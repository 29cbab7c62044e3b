// Package originalstest serves releases of CAPH, cert-manager and the cloud controller managers in tests: manifests,
// charts, and the images that they name.
package originalstest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/slipway-k8s/slipway/config"
)

// Server serves releases, and as a registry the images of everything.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	files    map[string][]byte
	change   func(http.ResponseWriter, *http.Request) bool
}

// New starts a server that has nothing.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{files: map[string][]byte{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests++
		change, data := s.change, s.files[r.URL.Path]
		s.mu.Unlock()
		switch {
		case change != nil && change(w, r):
		case data != nil:
			_, _ = w.Write(data)
		case strings.HasPrefix(r.URL.Path, "/v2/"):
			inner.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// Requests is how many there were.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Change has answer see each request first; it returns whether it has answered.
func (s *Server) Change(answer func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = answer
}

// Serve puts a file at a path.
func (s *Server) Serve(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
}

// Releases serves all four projects at the versions of a configuration, and returns it with their addresses, and the
// folder with the operator's files.
func (s *Server) Releases(t *testing.T, cfg config.Config) (config.Config, string) {
	t.Helper()
	overrides := t.TempDir()
	file := filepath.Join(overrides, "manifests", "clusterctl.yaml")
	text := fmt.Sprintf(`
providers:
- {name: hetzner, type: InfrastructureProvider, url: "%s/caph/${CAPH_VERSION}/infrastructure-components.yaml"}
`, s.URL)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.CAPH(t, cfg.CAPHVersion)
	cfg.CertManagerVersion, cfg.CertManagerURL = "v1.21.1", s.URL+"/cert-manager/cert-manager.yaml"
	var images []string
	for _, program := range []string{"controller", "webhook", "cainjector"} {
		image := "quay.io/jetstack/cert-manager-" + program + ":v1.21.1"
		images = append(images, image)
		s.Push(t, image, "/"+program)
	}
	s.Serve("/cert-manager/cert-manager.yaml", Manifest(images...))
	cfg.HCloudCCMRepository, cfg.TalosCCMRepository = s.URL+"/charts", s.URL+"/talos/"
	s.Chart(t, "/charts", "hcloud-cloud-controller-manager", cfg.HCloudCCMVersion, "",
		"docker.io/hetznercloud/hcloud-cloud-controller-manager:v{{ .Chart.Version }}")
	s.Push(t, "docker.io/hetznercloud/hcloud-cloud-controller-manager:v"+cfg.HCloudCCMVersion, "/bin/hccm", "--default")
	s.Chart(t, "/talos", "talos-cloud-controller-manager", cfg.TalosCCMVersion, "v1.12.0",
		"{{ .Values.image }}:{{ .Chart.AppVersion }}")
	s.Push(t, "ghcr.io/siderolabs/talos-cloud-controller-manager:v1.12.0", "/talos-ccm")
	return cfg, overrides
}

// CAPH serves a version of CAPH, with its image.
func (s *Server) CAPH(t *testing.T, version string) {
	t.Helper()
	s.Serve("/caph/"+version+"/infrastructure-components.yaml", Manifest("ghcr.io/syself/caph:"+version))
	s.Serve("/caph/"+version+"/metadata.yaml", []byte("releaseSeries: []\n"))
	s.Push(t, "ghcr.io/syself/caph:"+version, "/manager")
}

// Manifest has a Deployment for each image, as releases have, with variables of clusterctl in it.
func Manifest(images ...string) []byte {
	var out strings.Builder
	out.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: example}\n")
	for i, image := range images {
		fmt.Fprintf(&out, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: example-%d, namespace: example}
spec:
  replicas: ${REPLICAS:=1}
  template:
    spec:
      containers:
      - {name: manager, image: %s}
`, i, image)
	}
	return []byte(out.String())
}

// Chart serves a chart in a classic repository below a path. Its Deployment has the image, a template.
func (s *Server) Chart(t *testing.T, below, chart, version, appVersion, image string) []byte {
	t.Helper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	manifest := strings.ReplaceAll(string(Manifest("IMAGE")), "${REPLICAS:=1}", "1")
	for _, file := range []struct{ path, content string }{
		{"Chart.yaml", fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\nappVersion: %q\n", chart, version, appVersion)},
		{"values.yaml", "image: ghcr.io/siderolabs/talos-cloud-controller-manager\n"},
		{"templates/all.yaml", strings.ReplaceAll(manifest, "IMAGE", "\""+image+"\"")},
	} {
		header := &tar.Header{Name: chart + "/" + file.path, Mode: 0o644, Size: int64(len(file.content))}
		if err := files.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(files, file.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	s.Serve(below+"/"+chart+".tgz", archive.Bytes())
	s.Serve(below+"/index.yaml", fmt.Appendf(nil, "apiVersion: v1\nentries:\n  %s:\n  - {name: %s, version: %s, "+
		"urls: [%s.tgz], digest: %x}\n", chart, chart, version, chart, sha256.Sum256(archive.Bytes())))
	return archive.Bytes()
}

// Push makes an image whose program, at the first word of its entry point, has the reference as content.
func (s *Server) Push(t *testing.T, reference string, entrypoint ...string) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(entrypoint[0], "/"), Typeflag: tar.TypeReg, Mode: 0o755,
		Size: int64(len(reference))})
	if err == nil {
		_, err = io.WriteString(w, reference)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
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
	_, path, _ := strings.Cut(reference, "/")
	ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://") + "/" + path)
	if err == nil {
		err = remote.Write(ref, image)
	}
	if err != nil {
		t.Fatal(err)
	}
}
