package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// The programs of Flux are a set of their own, named by what they are made of, and a lab that starts without them is
// told where they will be.
func TestFluxPrograms(t *testing.T) {
	home := t.TempDir()
	source := filepath.Join(home, "source")
	b := &builder{source: source, cache: filepath.Join(home, "lab"), env: os.Environ(), lab: home,
		sets: &imageSets{config: config.Defaults()}}
	if bin, err := b.flux().bin(t.Context(), b); err != nil || bin != "" {
		t.Errorf("a source without Flux: %q, %v", bin, err)
	}
	module := filepath.Join(source, "flux", "2.7")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": "module example.com/flux\n\ngo 1.26\n", "go.sum": ""} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func(string, ...any) {}
	bin, err := b.flux().toRun(t.Context(), b, quiet)
	if err != nil || filepath.Dir(filepath.Dir(bin)) != b.cache || Exists(bin) || b.flux().recorded(b) {
		t.Errorf("not configured: %q, %v", bin, err)
	}
	if err := b.flux().built(t.Context(), b); err != nil {
		t.Errorf("not configured: %v", err)
	}
	b.sets.config.GitOps = config.GitOpsFlux
	if err := b.flux().built(t.Context(), b); err == nil || !strings.Contains(err.Error(), "lab build GITOPS=flux") {
		t.Errorf("configured, and not built: %v", err)
	}
	if _, err := b.flux().toRun(t.Context(), b, quiet); err != nil || !Exists(bin) || !b.flux().recorded(b) {
		t.Errorf("configured: %v", err)
	}
	if keep, err := b.flux().buildConfigured(t.Context(), b, true, quiet); err != nil || len(keep) != 1 || keep[0] != bin {
		t.Errorf("kept: %v, %v", keep, err)
	}
}

// The lab decides where Flux and the repository come from, unless these are configured.
func TestFluxInTheLab(t *testing.T) {
	var info Info
	err := json.Unmarshal([]byte(`{"flux": {"repository": "/lab/flux", "version": "v2.7.3"},
		"git": {"url": "http://127.65.0.2:8082/slipway.git", "branch": "main", "user": "git", "token": "secret"}}`), &info)
	if err != nil {
		t.Fatal(err)
	}
	c := settings.Configuration{Config: config.Defaults()}
	decided := func() map[string]string {
		all := map[string]string{}
		for _, d := range Decides(c, info) {
			all[d.Variable] = d.Value
		}
		return all
	}
	if _, ok := decided()["GIT_URL"]; ok {
		t.Error("without GITOPS the lab decides GIT_URL")
	}
	c.GitOps = config.GitOpsFlux
	if all := decided(); all["GIT_URL"] != info.Git.URL || all["FLUX_REPOSITORY"] != "/lab/flux" ||
		all["FLUX_VERSION"] != "v2.7.3" {
		t.Errorf("the lab decides %v", all)
	}
	c.Gitea = "true"
	if _, ok := decided()["GIT_URL"]; ok {
		t.Error("the lab decides GIT_URL, and the repository is to be Gitea's")
	}
	c.Gitea = ""
	c.GitURL, c.FluxRepository = "https://example.com/a.git", "/mirror"
	all := decided()
	for _, own := range []string{"GIT_URL", "GIT_BRANCH", "FLUX_REPOSITORY", "FLUX_VERSION"} {
		if _, ok := all[own]; ok {
			t.Errorf("the lab decides %s, which is configured", own)
		}
	}
	if access := info.GitAccess(); access.User != "git" || access.Token.Reveal() != "secret" {
		t.Errorf("the repository is read with %+v", access)
	}
	if m := firstManifest(c.Config); m["path"] != "clusters/k8s" || m["file"] != "clusters/k8s/cluster.yaml" ||
		!strings.Contains(m["content"], "name: k8s") {
		t.Errorf("the repository begins with %v", m)
	}
}
