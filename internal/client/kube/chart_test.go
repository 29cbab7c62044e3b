package kube_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/registry"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// TestChartOutOfARegistry: a registry on this machine is asked without TLS, says which versions it has, and a chart that
// was damaged on its way is told from one that could not be had.
func TestChartOutOfARegistry(t *testing.T) {
	var damages atomic.Bool
	stored := ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !damages.Load() || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			stored.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		stored.ServeHTTP(whole, r)
		body := whole.Body.Bytes()
		body[len(body)/2] ^= 1
		w.Write(body)
	}))
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://") + "/charts"
	file, err := chartutil.Save(demo("1.0.0"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := registry.NewClient(registry.ClientOptPlainHTTP(), registry.ClientOptWriter(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Push(archive, address+"/demo:1.0.0"); err != nil {
		t.Fatal(err)
	}
	from := kube.ChartSource{Repository: "oci://" + address, Name: "demo", Version: "1.0.0"}
	if ch, err := kube.LoadChart(t.Context(), from, t.TempDir(), io.Discard); err != nil || ch.Metadata.Version != "1.0.0" {
		t.Fatalf("%v, %v", ch, err)
	}
	for version, want := range map[string]bool{"1.0.0": true, "9.9.9": false} {
		of := from
		of.Version = version
		if has, err := of.InRegistry(t.Context(), t.TempDir(), io.Discard); err != nil || has != want {
			t.Errorf("%s is in the registry: %v, %v", version, has, err)
		}
	}
	damages.Store(true)
	if _, err := kube.LoadChart(t.Context(), from, t.TempDir(), io.Discard); !kube.CorruptChart(err) {
		t.Errorf("of a damaged chart: %v", err)
	}
	damages.Store(false)
	from.Version = "9.9.9"
	if _, err := kube.LoadChart(t.Context(), from, t.TempDir(), io.Discard); err == nil || kube.CorruptChart(err) {
		t.Errorf("of a chart that is not there: %v", err)
	}
}
