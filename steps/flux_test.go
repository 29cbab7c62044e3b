package steps

import (
	"cmp"
	"encoding/base64"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/platform"
)

const fluxManifest = `apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: source-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: source-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kustomize-controller, namespace: flux-system}
`

// fluxControllers play Flux's controllers in the workload cluster.
type fluxControllers struct {
	w *clustertest.Environment

	mu        sync.Mutex
	revision  string
	attempted string            // empty: revision
	trouble   map[string]string // by kind: the message of a condition Ready=False
	stalled   bool
}

func (f *fluxControllers) react(o *unstructured.Unstructured) {
	f.w.ReactWorkload(o)
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := o.GetKind()
	if kind != "GitRepository" && kind != "OCIRepository" && kind != "Kustomization" {
		return
	}
	ready := clustertest.Map{"type": "Ready", "status": "True", "message": "done"}
	if message := f.trouble[kind]; message != "" {
		ready = clustertest.Map{"type": "Ready", "status": "False", "reason": "Failed", "message": message}
	}
	conditions := []any{ready}
	if f.stalled {
		conditions = append(conditions, clustertest.Map{"type": "Stalled", "status": "True", "reason": "InvalidURL",
			"message": "no such scheme"})
	}
	f.w.Workload.Change(o.GetAPIVersion(), kind, o.GetNamespace(), o.GetName(), clustertest.Map{"status": clustertest.Map{
		"observedGeneration": 1, "conditions": conditions, "lastHandledReconcileAt": o.GetAnnotations()[flux.RequestedAt],
		"artifact": clustertest.Map{"revision": f.revision}, "lastAppliedRevision": f.revision,
		"lastAttemptedRevision": cmp.Or(f.attempted, f.revision)}})
}

// fluxWorld is an environment with a configuration for Flux.
func fluxWorld(t *testing.T) (*clustertest.Environment, *fluxControllers, config.Config, platform.Tools) {
	t.Helper()
	w := clustertest.New(t)
	controllers := &fluxControllers{w: w, revision: "main@sha1:1234", trouble: map[string]string{}}
	w.Workload.SetReact(controllers.react)
	cfg := w.Config()
	dir := t.TempDir()
	write(t, filepath.Join(dir, cfg.FluxVersion), "install.yaml", fluxManifest)
	cfg.GitOps, cfg.FluxRepository, cfg.GitURL = config.GitOpsFlux, dir, "https://git.example.com/fleet.git"
	tools := w.Tools()
	tools.Git = platform.GitAccess{User: "git", Token: platform.NewSecret("first-token")}
	return w, controllers, cfg, tools
}

func fluxObject(w *clustertest.Environment, kind string) *unstructured.Unstructured {
	versions := map[string]string{"GitRepository": "source.toolkit.fluxcd.io/v1", "Secret": "v1",
		"OCIRepository": "source.toolkit.fluxcd.io/v1", "Kustomization": "kustomize.toolkit.fluxcd.io/v1"}
	return w.Workload.Get(versions[kind], kind, flux.Namespace, flux.Name)
}

func TestFlux(t *testing.T) {
	w, _, cfg, tools := fluxWorld(t)
	journal := flow.Memory()
	run := func(journal flow.Journal) []string {
		t.Helper()
		report, err := runTargets(t, w, cfg, tools, journal, "flux-sync")
		if err != nil {
			t.Fatal(err)
		}
		return ran(report)
	}
	if got := run(journal); !slices.Contains(got, "flux") || !slices.Contains(got, "flux-sync") {
		t.Errorf("%v ran", got)
	}
	repository, sync := fluxObject(w, "GitRepository"), fluxObject(w, "Kustomization")
	if repository == nil || sync == nil {
		t.Fatal("an object is missing")
	}
	for _, want := range []struct {
		o     *unstructured.Unstructured
		value string
		field []string
	}{
		{repository, cfg.GitURL, []string{"spec", "url"}}, {repository, "main", []string{"spec", "ref", "branch"}},
		{repository, "flux-system", []string{"spec", "secretRef", "name"}},
		{sync, "./clusters/k8s", []string{"spec", "path"}},
		{sync, "GitRepository", []string{"spec", "sourceRef", "kind"}},
		{fluxObject(w, "Secret"), base64.StdEncoding.EncodeToString([]byte("first-token")), []string{"data", "password"}},
	} {
		if is, _, _ := unstructured.NestedString(want.o.Object, want.field...); is != want.value {
			t.Errorf("%s: %v is %q, want %q", want.o.GetKind(), want.field, is, want.value)
		}
	}

	// A second run changes nothing; one without its journal finds what exists.
	if s := fluxRevision(t, journal); s != "main@sha1:1234" {
		t.Errorf("the journal has revision %q", s)
	}
	writes := w.Writes()
	if got := run(journal); len(got) > 0 || w.Writes() != writes {
		t.Errorf("nothing changed, and %v ran with %d writes", got, w.Writes()-writes)
	}
	run(flow.Memory())
	if is := fluxObject(w, "GitRepository"); is.GetUID() != repository.GetUID() {
		t.Error("the GitRepository was created again")
	}

	// Another token reaches the cluster; a tool that did not read it does not judge it.
	tools.Git.Token = platform.NewSecret("second-token")
	if got := run(journal); !slices.Equal(got, []string{"flux-sync"}) {
		t.Errorf("another token, and %v ran", got)
	}
	if is, _, _ := unstructured.NestedString(fluxObject(w, "Secret").Object, "data", "password"); is !=
		base64.StdEncoding.EncodeToString([]byte("second-token")) {
		t.Errorf("the Secret has %s", is)
	}
	tools.Git = platform.GitAccess{}
	if got := run(journal); len(got) > 0 {
		t.Errorf("without a token, %v ran", got)
	}

	cfg.GitPath = "clusters/other"
	if got := run(journal); !slices.Equal(got, []string{"flux-sync"}) {
		t.Errorf("another path, and %v ran", got)
	}
	w.Workload.Remove("apps/v1", "Deployment", flux.Namespace, "kustomize-controller")
	if got := run(journal); !slices.Contains(got, "flux") ||
		w.Workload.Get("apps/v1", "Deployment", flux.Namespace, "kustomize-controller") == nil {
		t.Errorf("a controller is gone, and %v ran", got)
	}
	w.Workload.Remove("source.toolkit.fluxcd.io/v1", "GitRepository", flux.Namespace, flux.Name)
	if got := run(journal); !slices.Equal(got, []string{"flux-sync"}) || fluxObject(w, "GitRepository") == nil {
		t.Errorf("the GitRepository is gone, and %v ran", got)
	}
	w.Workload.Change("kustomize.toolkit.fluxcd.io/v1", "Kustomization", flux.Namespace, flux.Name,
		clustertest.Map{"spec": clustertest.Map{"suspend": true}, "status": clustertest.Map{"conditions": []any{}}})
	if got := run(journal); len(got) > 0 {
		t.Errorf("the operator has suspended the Kustomization, and %v ran", got)
	}
}

// fluxRevision is the revision in the journal's output of flux-sync.
func fluxRevision(t *testing.T, journal flow.Journal) string {
	t.Helper()
	_, _, cfg, tools := fluxWorld(t)
	p, err := New(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := flow.Restore(t.Context(), journal, p.FluxSync)
	if err != nil {
		t.Fatal(err)
	}
	return out.Revision
}

// What keeps Flux from applying the repository is the error's reason; after what no retry mends, the step ends at once.
func TestFluxReasons(t *testing.T) {
	for name, tt := range map[string]struct {
		trouble   map[string]string
		attempted string // by the Kustomization; empty: what the GitRepository has read
		stalled   bool
		suspend   bool
		timeout   bool
		says      string
	}{
		"repository": {trouble: map[string]string{"GitRepository": "authentication required"}, timeout: true,
			says: "GitRepository flux-system/flux-system: authentication required (Failed)"},
		"path": {trouble: map[string]string{"Kustomization": "path not found: clusters/k8s"}, timeout: true,
			says: "Kustomization flux-system/flux-system: path not found: clusters/k8s (Failed)"},
		"a strategy that cannot be merged": {trouble: map[string]string{"Kustomization": "Deployment/default/web dry-run " +
			"failed (Invalid): Deployment.apps \"web\" is invalid: spec.strategy.rollingUpdate: Forbidden: may not be " +
			"specified when strategy `type` is 'Recreate'\n"},
			says: "rollingUpdate: null in Git does not do it either. Remove it once, which restarts no Pod: kubectl " +
				"--namespace default patch deployment web"},
		"one of an older revision": {attempted: "main@sha1:0", timeout: true, trouble: map[string]string{
			"Kustomization": "Deployment.apps \"web\" is invalid: spec.strategy.rollingUpdate: Forbidden: may not be " +
				"specified when strategy `type` is 'Recreate'"}, says: "the update strategy of Deployment web"},
		"stalled": {trouble: map[string]string{"GitRepository": "bad"}, stalled: true,
			says: "no such scheme (InvalidURL)"},
		"suspended": {suspend: true, says: "Kustomization flux-system/flux-system: it is suspended, so that Flux does not " +
			"apply the repository"},
	} {
		t.Run(name, func(t *testing.T) {
			w, controllers, cfg, tools := fluxWorld(t)
			if _, err := runTargets(t, w, cfg, tools, flow.Memory(), "flux-sync"); err != nil {
				t.Fatal(err)
			}
			if tt.suspend {
				w.Workload.Change("kustomize.toolkit.fluxcd.io/v1", "Kustomization", flux.Namespace, flux.Name,
					clustertest.Map{"spec": clustertest.Map{"suspend": true}})
			}
			controllers.mu.Lock()
			controllers.trouble, controllers.stalled, controllers.attempted = tt.trouble, tt.stalled, tt.attempted
			controllers.mu.Unlock()
			if tt.timeout {
				clustertest.Configure(t, &cfg, "RELEASE_TIMEOUT=1s")
			}
			_, err := runTargets(t, w, cfg, tools, flow.Memory(), "flux-sync")
			var late *wait.TimeoutError
			if err == nil || !strings.Contains(err.Error(), tt.says) || errors.As(err, &late) != tt.timeout {
				t.Errorf("got %v; want %q", err, tt.says)
			}
			if err != nil && strings.Contains(err.Error(), "first-token") {
				t.Error("the error has the token")
			}
		})
	}
}

// Without GITOPS the plan has no step of it.
func TestNoFluxUnlessConfigured(t *testing.T) {
	w := clustertest.New(t)
	p, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if p.Flux != nil || p.FluxSync != nil || slices.ContainsFunc(p.Graph.Steps(),
		func(s flow.Info) bool { return strings.HasPrefix(s.Name, "flux") }) {
		t.Error("the plan has steps of Flux")
	}
}

// A manifest that is missing or is none is an error that names it, before anything is applied.
func TestFluxManifestThatIsNone(t *testing.T) {
	for content, says := range map[string]string{"": "no such file",
		"kind: Namespace\nmetadata: {name: a}\n": "no Deployment", "a: [": "read the manifest of Flux"} {
		w, _, cfg, tools := fluxWorld(t)
		if cfg.FluxVersion = "v2.7.4"; content != "" {
			write(t, filepath.Join(cfg.FluxRepository, cfg.FluxVersion), "install.yaml", content)
		}
		_, err := runTargets(t, w, cfg, tools, flow.Memory(), "flux")
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "v2.7.4") {
			t.Errorf("%q: got %v; want %q", content, err, says)
		}
		if w.Workload.Get("v1", "Namespace", "", flux.Namespace) != nil {
			t.Errorf("%q: something was applied", content)
		}
	}
}
