package test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fluxFromRegistry has Flux apply an OCI artifact of a private registry in place of the Git repository. It
// reads it with the user and the token only, and a second run changes nothing.
func fluxFromRegistry(t *testing.T, c *command) {
	t.Helper()
	const user, token = "reader", "registry-token-of-the-test"
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`,
				http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/fleet"
	reference := must(name.NewTag(repository + ":v1.2.0"))(t)
	artifact := fluxArtifact(t, "clusters/k8s/registry.yaml", "apiVersion: v1\nkind: ConfigMap\n"+
		"metadata: {name: of-the-registry, namespace: default}\n")
	credentials := remote.WithAuth(&authn.Basic{Username: user, Password: token})
	if err := remote.Write(reference, artifact, credentials); err != nil {
		t.Fatal(err)
	}

	from := *c
	args := []string{"flux-sync", "--lab", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1", "GIT_URL=oci://" + repository,
		"OCI_TAG=v1.2.0", "GIT_USER=" + user}
	from.env = append(slices.Clone(c.env), "GIT_TOKEN=another-token")
	if r := from.run(nil, append(args, "RELEASE_TIMEOUT=30s")...); r.exit != 1 ||
		!strings.Contains(r.output, "OCIRepository flux-system/flux-system") ||
		!strings.Contains(strings.ToLower(r.output), "authentication") {
		t.Errorf("with another token: exit %d\n%s", r.exit, r.output)
	}
	from.env = append(slices.Clone(c.env), "GIT_TOKEN="+token)
	first := from.run(nil, args...)
	if first.exit != 0 || strings.Contains(first.output, token) {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	if _, err := workload(t, c).CoreV1().ConfigMaps("default").Get(t.Context(), "of-the-registry",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	again := from.run(nil, args...)
	if ran := again.steps("step-started"); again.exit != 0 || slices.Contains(ran, "flux-sync") {
		t.Errorf("exit %d, %v ran\n%s", again.exit, ran, again.output)
	}
}

// fluxArtifact is an OCI artifact with one file, as `flux push artifact` makes it.
func fluxArtifact(t *testing.T, file, content string) v1.Image {
	t.Helper()
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	files := tar.NewWriter(zip)
	if err := files.WriteHeader(&tar.Header{Name: file, Mode: 0o600, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(files, content); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{files, zip} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.cncf.flux.config.v1+json")
	return must(mutate.AppendLayers(image, static.NewLayer(archive.Bytes(),
		"application/vnd.cncf.flux.content.v1.tar+gzip")))(t)
}
