package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/operation/dependencies"
)

const depsShop = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: shop, namespace: apps}\n" +
	"spec: {dependsOn: [{name: db}]}\n"

// TestDepsAudit: the list is written, agrees, and drift is exit code 1.
func TestDepsAudit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("tree", 0o700); err != nil {
		t.Fatal(err)
	}
	write("tree/shop.yaml", depsShop+"---\n"+strings.NewReplacer("shop", "db", "{name: db}", "").Replace(depsShop))
	r := execute(t, t.Context(), dir, "", "deps", "audit", "tree")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "--write writes it") {
		t.Errorf("without a list: %+v", r)
	}
	r = execute(t, t.Context(), dir, "", "deps", "audit", "--write", "tree")
	list, err := os.ReadFile("deps.yaml")
	if r.code != ExitDone || err != nil || !strings.HasSuffix(string(list), "helmReleases:\n  apps/db: []\n  apps/shop: [db]\n") {
		t.Fatalf("%+v, %v: %s", r, err, list)
	}
	if r = execute(t, t.Context(), dir, "", "deps", "audit", "tree"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "all is as deps.yaml expects") {
		t.Errorf("as written: %+v", r)
	}
	write("tree/shop.yaml", depsShop)
	r = execute(t, t.Context(), dir, "", "deps", "audit", "tree", "--output", "json")
	var report dependencies.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != ExitFailed || len(report.Findings) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	write("tree/bad.yaml", "a: [\n")
	before, _ := os.ReadFile("deps.yaml")
	r = execute(t, t.Context(), dir, "", "deps", "audit", "tree", "--write")
	if after, _ := os.ReadFile("deps.yaml"); r.code != ExitUsage || !strings.Contains(r.stderr, "bad.yaml: line 1") ||
		string(before) != string(after) {
		t.Errorf("bad YAML: %+v", r)
	}
	for want, args := range map[string][]string{
		"needs FILE":             {"deps", "audit"},
		"takes one of":           {"deps"},
		"take one of the two":    {"deps", "audit", "--live", "tree"},
		"there is no kubeconfig": {"deps", "audit", "--live"},
		"is none of":             {"deps", "graph", "tree", "--output", "png"},
	} {
		if r := execute(t, t.Context(), dir, "", args...); r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestDepsLive(t *testing.T) {
	api, dir := fluxCluster(t)
	r := execute(t, t.Context(), dir, "", "deps", "graph", "--live", "--output", "dot")
	if r.code != ExitDone || !strings.Contains(r.stdout, `"HelmRelease apps/db (missing)" -> "HelmRelease apps/shop"`) {
		t.Errorf("%+v", r)
	}
	r = execute(t, t.Context(), dir, "", "deps", "audit", "--live", "--write", "--expected", "live.yaml")
	if r.code != ExitFailed || !strings.Contains(r.stdout, "dependency does not exist") || len(api.Writes()) != 0 {
		t.Errorf("%+v, %v", r, api.Writes())
	}
	if list, err := os.ReadFile("live.yaml"); err != nil || !strings.Contains(string(list), "apps/shop: [db]") {
		t.Errorf("%v: %s", err, list)
	}
}
