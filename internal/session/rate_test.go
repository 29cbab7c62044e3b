package session

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// A run leaves what it knows of the rate limit, with what its last requests brought.
func TestRateIsKept(t *testing.T) {
	hetzner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Remaining", "3456")
		w.Header().Set("RateLimit-Reset", "0")
	}))
	defer hetzner.Close()
	path := filepath.Join(t.TempDir(), runs.RateFile)
	limit := ratelimit.New(nil)
	end := keepRate(limit, path)
	client := &http.Client{Transport: limit.Transport(http.DefaultTransport)}
	response, err := client.Get(hetzner.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	end()
	end() // a run that fails closes twice
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rate runs.Rate
	if err := json.Unmarshal(data, &rate); err != nil || rate.Requests != 1 || rate.Limit != 3600 || rate.Remaining != 3456 ||
		time.Since(rate.Time) > time.Minute {
		t.Errorf("%s: %v", data, err)
	}
}
