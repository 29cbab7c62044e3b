package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// TestGiteaWithAVolumeInALab: what no lab provisions is refused before one is started, and what is to be written works.
func TestGiteaWithAVolumeInALab(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bootstrap.yaml"), []byte("gitops: flux\ngitea: true\naddons: [hcloud-csi]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, words := range []string{"--lab", "plan --lab", "all --lab", "plan --lab ADDONS=hcloud-csi,metrics-server"} {
		r := execute(t, t.Context(), dir, "", strings.Fields(words)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, "which nothing provisions in a lab") ||
			!strings.Contains(r.stderr, "--lab ADDONS=") {
			t.Errorf("%s: %+v", words, r)
		}
	}
	writeBackup(t, "whole", backup.Seal{Unencrypted: true}, backup.Header{Cluster: "k8s", UID: "uid", Taken: time.Now()})
	for _, words := range []string{"drill", "drill --backup whole --unencrypted",
		"upgrade --rehearse whole --unencrypted --yes"} {
		r := execute(t, t.Context(), dir, "", strings.Fields(words)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, "which nothing provisions in a lab") {
			t.Errorf("%s: %+v", words, r)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("they left %v, %v", entries, err)
	}
	for _, words := range []string{"plan --lab ADDONS=", "plan"} {
		if r := execute(t, t.Context(), dir, "", strings.Fields(words)...); r.code != ExitDone ||
			!strings.Contains(r.stdout, "addon-gitea") {
			t.Errorf("%s: %+v", words, r)
		}
	}
}

// TestRepositoryOfFlux: without a repository Flux is refused with exit code 2, by whatever tells what a run would do, too;
// one in Gitea needs no address, and nothing that another one is read with.
func TestRepositoryOfFlux(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for words, says := range map[string]string{
		"plan GITOPS=flux":                                                     "is empty while gitops is flux",
		"doctor GITOPS=flux":                                                   "GITEA=true",
		"flux-sync GITOPS=flux":                                                "GITEA=true",
		"plan GITOPS=flux GITEA=true GIT_TOKEN_FILE=token":                     "gitTokenFile",
		"plan GITOPS=flux GITEA=true GITEA_REPOSITORY=a/b":                     "GITEA_REPOSITORY=a/b",
		"plan GITOPS=flux GITEA=true GITEA_TOKEN_SCOPES=read:user":             "read:repository",
		"plan GITOPS=flux GITEA=true GITEA_TIMEOUT=15m":                        "GITEA_TIMEOUT=15m",
		"gitea-repository GITOPS=flux GITEA=true GIT_URL=https://host/a.git":   "no target",
		"gitea-repository GITEA=true":                                          "no target",
		"plan gitea-repository GITOPS=flux GITEA=true GIT_URL=https://h/a.git": "gitea-repository",
	} {
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=a-real-looking-token", strings.Fields(words)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %+v; want %q", words, r, says)
		}
	}
	r := execute(t, t.Context(), dir, "GIT_TOKEN=of-another-repository", "plan", "GITOPS=flux", "GITEA=true")
	if r.code != ExitDone || !strings.Contains(r.stdout, "gitea-repository") {
		t.Errorf("%+v", r)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("they left %v, %v", entries, err)
	}
}
