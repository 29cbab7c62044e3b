package steps

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

func TestRetry(t *testing.T) {
	broken := &url.Error{Op: "Get", URL: "https://charts.example.com", Err: io.EOF}
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, format) }
	tries := 0
	err := wait.Retry(t.Context(), say, "the download", func() error {
		if tries++; tries == 1 {
			return broken
		}
		return nil
	})
	if err != nil || tries != 2 || len(lines) != 1 || !strings.Contains(lines[0], "again") {
		t.Errorf("a line that was back: %v after %d tries, said %q", err, tries, lines)
	}
	tries = 0
	wrong := errors.New("no such version")
	if err := wait.Retry(t.Context(), say, "the download", func() error { tries++; return wrong }); !errors.Is(err,
		wrong) || tries != 1 {
		t.Errorf("what no try will mend: %v after %d tries", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := wait.Retry(ctx, say, "the download", func() error { cancel(); return broken }); !errors.Is(err, broken) {
		t.Errorf("an ended run: %v", err)
	}
}

// TestDownloadsAreTriedAgain runs the plan where each download fails once.
func TestDownloadsAreTriedAgain(t *testing.T) {
	w := clustertest.New(t)
	to, err := url.Parse(w.Charts)
	if err != nil {
		t.Fatal(err)
	}
	var chartFailed, providersFailed atomic.Bool
	charts := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if chartFailed.CompareAndSwap(false, true) {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		charts.ServeHTTP(rw, r)
	}))
	defer s.Close()
	cfg, tools := w.Config(), w.Tools()
	cfg.CiliumRepository = s.URL
	working := tools.Clusterctl
	tools.Clusterctl = func(ctx context.Context, c clusterctlconfig.Client, contract string) (platform.Clusterctl, error) {
		if providersFailed.CompareAndSwap(false, true) {
			return nil, &url.Error{Op: "Get", URL: "https://github.com", Err: io.EOF}
		}
		return working(ctx, c, contract)
	}
	plan, err := New(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Targets: plan.Bootstrap}); err != nil {
		t.Fatal(err)
	}
	if !chartFailed.Load() || !providersFailed.Load() {
		t.Error("nothing failed")
	}
}
