package argocd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/platform/kind"
	"github.com/slipway-k8s/slipway/steps"
)

// api keeps one Application, as a cluster with Argo CD does.
type api struct {
	mu      sync.Mutex
	is      map[string]any
	applied int
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/platform" {
		http.Error(w, "{}", http.StatusForbidden)
		return
	}
	if r.Method == http.MethodPatch {
		a.applied++
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &a.is); err != nil {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		a.is["metadata"].(map[string]any)["uid"] = fmt.Sprint("uid-", a.applied)
	}
	if a.is == nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	_ = json.NewEncoder(w).Encode(a.is)
}

// TestArgoCD: the step comes after the chart, and is part of the targets all and, after the pivot, bootstrap. It is run
// here without what it depends on.
func TestArgoCD(t *testing.T) {
	a := &api{}
	server := httptest.NewServer(a)
	defer server.Close()
	cfg := config.Defaults()
	cfg.Addons = append(cfg.Addons, Chart)
	if wrong := cfg.Validate(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	tools := platform.Tools{Files: platform.FilesIn(t.TempDir())}
	tools.Management = kind.New(cfg, tools)
	err := tools.Files.Write(platform.Kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config",
"current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{}}],
"clusters":[{"name":"a","cluster":{"server":%q}}]}`, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	p, err := steps.New(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	step := Add(p, tools.Files.Path(platform.Kubeconfig), "https://example.com/fleet.git", "clusters/k8s")
	if err := p.Graph.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Graph.Steps() {
		if s.Name == step.Name() && !slices.Equal(s.Needs, []string{"addon-argo-cd"}) {
			t.Errorf("it needs %v", s.Needs)
		}
	}
	if !slices.Contains(p.All, step.Name()) || !slices.Contains(p.Managed, step.Name()) {
		t.Error("no target has it")
	}

	alone := &steps.Plan{Graph: flow.New("test")}
	step, journal := Add(alone, tools.Files.Path(platform.Kubeconfig), "https://example.com/fleet.git", "clusters/k8s"), flow.Memory()
	run := func(applied int) {
		t.Helper()
		if _, err := alone.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: alone.All}); err != nil {
			t.Fatal(err)
		}
		uid, done, err := flow.Restore(t.Context(), journal, step)
		if a.applied != applied || err != nil || !done || uid != fmt.Sprint("uid-", applied) {
			t.Errorf("applied %d times, want %d: %s, %v, %v", a.applied, applied, uid, done, err)
		}
	}
	run(1)
	run(1) // nothing changed
	a.is = nil
	run(2) // it was deleted
	source := a.is["spec"].(map[string]any)["source"].(map[string]any)
	if source["repoURL"] != "https://example.com/fleet.git" || source["path"] != "clusters/k8s" {
		t.Errorf("it reads %v", source)
	}
}
