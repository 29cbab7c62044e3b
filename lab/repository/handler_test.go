package repository

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// reply is what the handler answered.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// asker makes a repository and returns how to ask it.
func asker(t *testing.T) (func(method, path string) reply, Contents) {
	t.Helper()
	dir := t.TempDir()
	contents := write(t, dir)
	server := httptest.NewServer(Handler(dir))
	t.Cleanup(server.Close)
	return func(method, path string) reply {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{response.StatusCode, response.Header, body}
	}, contents
}

func TestClassicRepository(t *testing.T) {
	ask, contents := asker(t)
	var index struct {
		APIVersion string `json:"apiVersion"`
		Entries    map[string][]struct {
			Name, Version, Digest string
			URLs                  []string `json:"urls"`
		} `json:"entries"`
	}
	if err := yaml.Unmarshal(ask(http.MethodGet, "/index.yaml").body, &index); err != nil {
		t.Fatal(err)
	}
	if index.APIVersion != "v1" || len(index.Entries) != 7 || len(contents.Charts) < 7 {
		t.Fatalf("index %+v for charts %+v", index, contents.Charts)
	}
	for _, chart := range contents.Charts {
		found := 0
		for _, entry := range index.Entries[chart.Name] {
			if entry.Version != chart.Version || len(entry.URLs) != 1 {
				continue
			}
			found++
			archive := ask(http.MethodGet, "/"+entry.URLs[0])
			if archive.status != http.StatusOK || hexDigest(archive.body) != entry.Digest || chart.Digest != entry.Digest {
				t.Errorf("%s: status %d, digest %s, index %s, contents %s", chart.Name, archive.status,
					hexDigest(archive.body), entry.Digest, chart.Digest)
			}
		}
		if found != 1 {
			t.Errorf("%s %s has %d entries of %+v", chart.Name, chart.Version, found, index.Entries[chart.Name])
		}
	}
	for _, path := range []string{"/", "/none-1.0.0.tgz", "/..%2fproviders%2fcluster-api"} {
		if got := ask(http.MethodGet, path); got.status != http.StatusNotFound {
			t.Errorf("GET %s answers %d: %s", path, got.status, got.body)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodDelete} {
		for _, path := range []string{"/index.yaml", "/v2/siderolabs/charts/talos-cloud-controller-manager/manifests/0.5.4"} {
			if got := ask(method, path).status; got != http.StatusMethodNotAllowed {
				t.Errorf("%s %s answers %d", method, path, got)
			}
		}
	}
}

func TestOCIRegistry(t *testing.T) {
	ask, contents := asker(t)
	if got := ask(http.MethodGet, "/v2/"); got.status != http.StatusOK {
		t.Errorf("GET /v2/ answers %d: no registry", got.status)
	}
	const name = "siderolabs/charts/talos-cloud-controller-manager"
	at := slices.IndexFunc(contents.Charts, func(c Chart) bool { return c.OCI == name })
	if at < 0 {
		t.Fatalf("no chart is at %s: %+v", name, contents.Charts)
	}
	chart := contents.Charts[at]
	var tags struct {
		Name string
		Tags []string
	}
	if err := json.Unmarshal(ask(http.MethodGet, "/v2/"+name+"/tags/list").body, &tags); err != nil || tags.Name != name ||
		len(tags.Tags) != 1 || tags.Tags[0] != chart.Version {
		t.Errorf("tags %+v, %v", tags, err)
	}

	byTag := ask(http.MethodGet, "/v2/"+name+"/manifests/"+chart.Version)
	digest := byTag.header.Get("Docker-Content-Digest")
	if byTag.status != http.StatusOK || digest != ociDigest(byTag.body) ||
		byTag.header.Get("Content-Type") != manifestType {
		t.Errorf("manifest: status %d, digest %s, type %s", byTag.status, digest, byTag.header.Get("Content-Type"))
	}
	head := ask(http.MethodHead, "/v2/"+name+"/manifests/"+chart.Version)
	if head.status != http.StatusOK || head.header.Get("Docker-Content-Digest") != digest ||
		head.header.Get("Content-Length") == "" {
		t.Errorf("HEAD of the manifest: status %d, header %v", head.status, head.header)
	}
	byDigest := ask(http.MethodGet, "/v2/"+name+"/manifests/"+url.PathEscape(digest))
	if string(byDigest.body) != string(byTag.body) {
		t.Errorf("the manifest by digest is another: %s", byDigest.body)
	}

	var manifest ociManifest
	if err := json.Unmarshal(byTag.body, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != chartType || manifest.Config.MediaType != configType {
		t.Fatalf("manifest %+v is not a Helm chart's", manifest)
	}
	if manifest.Layers[0].Digest != "sha256:"+chart.Digest {
		t.Errorf("the layer %s is not the archive %s", manifest.Layers[0].Digest, chart.Digest)
	}
	for _, blob := range []descriptor{manifest.Config, manifest.Layers[0]} {
		got := ask(http.MethodGet, "/v2/"+name+"/blobs/"+blob.Digest)
		if ociDigest(got.body) != blob.Digest || len(got.body) != blob.Size ||
			got.header.Get("Docker-Content-Digest") != blob.Digest {
			t.Errorf("blob %+v: %d bytes with digest %s", blob, len(got.body), ociDigest(got.body))
		}
	}
	for path, code := range map[string]string{
		"/v2/" + name + "/manifests/9.9.9": "MANIFEST_UNKNOWN",
		"/v2/" + name + "/blobs/sha256:00": "BLOB_UNKNOWN",
		"/v2/charts/cilium/tags/list":      "NAME_UNKNOWN",
	} {
		if got := ask(http.MethodGet, path); got.status != http.StatusNotFound || !strings.Contains(string(got.body), code) {
			t.Errorf("GET %s answers %d: %s, want 404 and %s", path, got.status, got.body, code)
		}
	}
}
