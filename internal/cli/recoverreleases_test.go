package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
)

// fluxCluster is a cluster with a HelmRelease whose pending upgrade was abandoned, and a state folder that has its
// kubeconfig.
func fluxCluster(t *testing.T) (api *kubetest.Server, dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Chdir(dir)
	api = kubetest.New("uid", kubetest.Resource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease",
		Plural: "helmreleases"}, kubetest.Resource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1",
		Kind: "Kustomization", Plural: "kustomizations"})
	t.Cleanup(api.Close)
	passed := time.Duration(0)
	api.Now = func() time.Time { return time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC).Add(passed) }
	api.Strict = true
	api.Put(kubetest.Object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "apps", "shop", map[string]any{
		"metadata": map[string]any{"generation": 1}, "spec": map[string]any{"dependsOn": []any{map[string]any{"name": "db"}}}}))
	api.Put(kubetest.Object("v1", "Secret", "apps", "sh.helm.release.v1.shop.v1", map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"owner": "helm", "name": "shop", "version": "1", "status": "pending-install"}}}))
	passed = time.Hour
	state := filepath.Join(dir, ".slipway", "k8s")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "kubeconfig"), api.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return api, dir
}

// TestRecoverReleases: no token is needed, a look leaves no trace, and a run keeps what it changed.
func TestRecoverReleases(t *testing.T) {
	api, dir := fluxCluster(t)
	before := folderContents(t, dir)
	r := execute(t, t.Context(), dir, "", "recover-releases", "--dry-run", "--output", "json")
	var report releases.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != ExitDone || len(report.Stuck) != 1 ||
		report.Stuck[0].Outcome != releases.WouldRecover || len(api.Writes()) != 0 || folderContents(t, dir) != before {
		t.Fatalf("%+v, %v, %v", r, err, api.Writes())
	}
	r = execute(t, t.Context(), dir, "", "recover-releases")
	if r.code != ExitDone || !strings.Contains(r.stdout, "1 stuck, 1 recovered") ||
		api.Get("v1", "Secret", "apps", "sh.helm.release.v1.shop.v1") != nil {
		t.Fatalf("%+v", r)
	}
	if r := execute(t, t.Context(), dir, "", "effects"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "sh.helm.release.v1.shop.v1") {
		t.Errorf("its effects: %+v", r)
	}
}

func TestRecoverReleasesRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for want, args := range map[string][]string{
		"there is no kubeconfig of a cluster": {"recover-releases"},
		"--threshold 0s":                      {"recover-releases", "--threshold", "0s"},
		"this is no Pod":                      {"recover-releases", "--in-cluster"},
		"--image \"\"":                        {"recover-releases", "cronjob"},
		"--every 7m":                          {"recover-releases", "cronjob", "--image", "a/b", "--every", "7m"},
		"--namespace \"A\"":                   {"recover-releases", "cronjob", "--image", "a/b", "--namespace", "A"},
		"--threshold -1s is no":               {"recover-releases", "cronjob", "--image", "a/b", "--threshold", "-1s"},
	} {
		if r := execute(t, t.Context(), dir, "", args...); r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("they left %v, %v", entries, err)
	}
	r := execute(t, t.Context(), dir, "", "recover-releases", "cronjob", "--image", "registry.example/slipway:v1")
	docs, err := kube.Documents([]byte(r.stdout))
	if r.code != ExitDone || err != nil || len(docs) != 4 || !strings.Contains(r.stdout, `schedule: "*/10 * * * *"`) {
		t.Errorf("%+v, %v", r, err)
	}
}
