package flux

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/platform"
)

func quiet(string, ...any) {}

func TestManifestOfAMirror(t *testing.T) {
	cfg := config.Defaults()
	asked, version := "", cfg.FluxVersion
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked = r.URL.Path; strings.HasSuffix(asked, version+"/install.yaml") {
			_, _ = w.Write([]byte("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: a, namespace: flux-system}\n"))
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	cfg.FluxRepository = server.URL + "/flux"
	data, err := Manifest(t.Context(), cfg, quiet)
	if err != nil || asked != "/flux/"+cfg.FluxVersion+"/install.yaml" {
		t.Fatalf("asked for %s: %v", asked, err)
	}
	objects, workloads, err := Objects(cfg, data)
	if err != nil || len(objects) != 1 || len(workloads) != 1 || workloads[0].Name != "a" {
		t.Errorf("%d objects, workloads %v, %v", len(objects), workloads, err)
	}
	cfg.FluxVersion = "v2.0.0"
	if _, err := Manifest(t.Context(), cfg, quiet); err == nil || !strings.Contains(err.Error(), "404") ||
		!strings.Contains(err.Error(), "FLUX_VERSION") {
		t.Errorf("a version that is not there: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	git, registry, hub := config.Defaults(), config.Defaults(), config.Defaults()
	git.GitURL, registry.GitURL, hub.GitURL = "https://a/b.git", "oci://127.0.0.1:5000/a/b", "oci://docker.io/a/b"
	token := platform.GitAccess{User: "git", Token: platform.NewSecret("t")}
	for name, tt := range map[string]struct {
		cfg    config.Config
		access platform.GitAccess
		want   map[string]string
	}{
		"nothing":                 {git, platform.GitAccess{User: "git"}, nil},
		"nothing, for a registry": {registry, platform.GitAccess{User: "git"}, nil},
		"a token":                 {git, token, map[string]string{"username": "git", "password": "t"}},
		"a key": {git, platform.GitAccess{User: "git", Key: platform.NewSecret("k"), KnownHosts: "h"},
			map[string]string{"identity": "k", "known_hosts": "h"}},
		"a registry": {registry, token, map[string]string{".dockerconfigjson": `{"auths":{"127.0.0.1:5000":` +
			`{"password":"t","username":"git"}}}`}},
		"Docker Hub": {hub, token, map[string]string{".dockerconfigjson": `{"auths":{"index.docker.io":` +
			`{"password":"t","username":"git"}}}`}},
	} {
		if got, err := Credentials(tt.cfg, tt.access); err != nil || !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestStateOf(t *testing.T) {
	ready := map[string]any{"type": "Ready", "status": "True"}
	failed := map[string]any{"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "path not found"}
	for name, tt := range map[string]struct {
		status    map[string]any
		suspend   bool
		requested string
		annotated string
		want      State
	}{
		"nothing said": {want: State{Reason: "said nothing"}},
		"ready": {status: map[string]any{"observedGeneration": int64(2), "conditions": []any{ready},
			"artifact": map[string]any{"revision": "main@1"}}, want: State{Ready: true, Revision: "main@1"}},
		"of an older generation": {status: map[string]any{"observedGeneration": int64(1), "conditions": []any{ready}},
			want: State{Reason: "said nothing"}},
		"before the request": {status: map[string]any{"observedGeneration": int64(2), "conditions": []any{ready},
			"lastHandledReconcileAt": "earlier"}, requested: "now", want: State{Reason: "has not reconciled"}},
		"after the request": {status: map[string]any{"observedGeneration": int64(2), "conditions": []any{ready},
			"lastHandledReconcileAt": "now", "lastAppliedRevision": "main@2"}, requested: "now",
			want: State{Ready: true, Revision: "main@2"}},
		"after another one's request": {status: map[string]any{"observedGeneration": int64(2), "conditions": []any{ready},
			"lastHandledReconcileAt": "later", "lastAppliedRevision": "main@2"}, requested: "now", annotated: "later",
			want: State{Ready: true, Revision: "main@2"}},
		"before another one's request": {status: map[string]any{"observedGeneration": int64(2), "conditions": []any{ready},
			"lastHandledReconcileAt": "earlier"}, requested: "now", annotated: "later",
			want: State{Reason: "has not reconciled"}},
		"failed": {status: map[string]any{"observedGeneration": int64(2), "conditions": []any{failed}},
			want: State{Reason: "path not found (BuildFailed)"}},
		"a strategy that server-side apply cannot merge": {status: map[string]any{"observedGeneration": int64(2),
			"lastAttemptedRevision": "main@2", "conditions": []any{map[string]any{"type": "Ready", "status": "False",
				"reason": "ReconciliationFailed", "message": "Deployment/default/web dry-run failed (Invalid): Deployment.apps " +
					"\"web\" is invalid: spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is " +
					"'Recreate'\n"}}}, want: State{Rejected: true, Attempted: "main@2", Reason: "'Recreate' " +
			"(ReconciliationFailed): the update strategy of Deployment web was changed"}},
		"failed before the request": {status: map[string]any{"conditions": []any{failed}}, requested: "now",
			want: State{Reason: "has not reconciled it yet: path not found"}},
		"suspended": {status: map[string]any{"conditions": []any{failed}}, suspend: true,
			want: State{Suspended: true, Reason: "suspended"}},
		"stalled": {status: map[string]any{"conditions": []any{failed,
			map[string]any{"type": "Stalled", "status": "True", "reason": "InvalidURL", "message": "scheme"}}},
			want: State{Stalled: true, Reason: "scheme (InvalidURL)"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Kustomization(config.Defaults())
			o.SetGeneration(2)
			if tt.status != nil {
				o.Object["status"] = tt.status
			}
			if tt.suspend {
				_ = unstructured.SetNestedField(o.Object, true, "spec", "suspend")
			}
			if tt.annotated != "" {
				o.SetAnnotations(map[string]string{RequestedAt: tt.annotated})
			}
			got := StateOf(o, tt.requested)
			said := got.Reason
			if (tt.want.Reason == "") != (said == "") || !strings.Contains(said, tt.want.Reason) {
				t.Errorf("reason %q, want %q", said, tt.want.Reason)
			}
			got.Reason, tt.want.Reason = "", ""
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
