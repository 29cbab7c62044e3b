package cli

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/client/gitclone/gitclonetest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
)

// deployCilium leaves what Helm keeps of an installed Cilium. Three of its values are secrets:
// the Hetzner token, the password of a chart repository and the token of the Git repository.
func deployCilium(t *testing.T, api *kubetest.Server) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	err = storage.Init(driver.NewSecrets(clients.CoreV1().Secrets("kube-system"))).Create(&release.Release{Name: "cilium",
		Namespace: "kube-system", Version: 1, Config: map[string]any{"note": "planted-token",
			"mirror": "planted-password", "git": "planted-git-token", "debug": true},
		Info:  &release.Info{Status: release.StatusDeployed},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "cilium", Version: "1.2.3"}}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGitopsInit: it reads the cluster and writes the folder, once; a file that differs is exit code 1.
func TestGitopsInit(t *testing.T) {
	api, dir := fluxCluster(t)
	deployCilium(t, api)
	api.Put(kubetest.Object("v1", "Secret", "flux-system", "flux-system", map[string]any{"data": map[string]any{
		"password": base64.StdEncoding.EncodeToString([]byte("planted-git-token"))}}))
	writes, before := len(api.Writes()), folderContents(t, dir)
	const environment = "HCLOUD_TOKEN=planted-token CILIUM_REPOSITORY=https://me:planted-password@charts.example/mirror"
	run := func(words ...string) ran {
		t.Helper()
		r := execute(t, t.Context(), dir, environment, append([]string{"gitops", "init"}, words...)...)
		if strings.Contains(r.stdout+r.stderr, "planted") || len(api.Writes()) != writes {
			t.Errorf("%q: %+v, %v", words, r, api.Writes())
		}
		return r
	}
	r := run("fleet", "--dry-run")
	docs, err := kube.Documents([]byte(r.stdout))
	if r.code != ExitDone || err != nil || len(docs) != 8 || folderContents(t, dir) != before ||
		!strings.Contains(r.stdout, "# clusters/k8s/infrastructure/cilium.yaml (new)") {
		t.Fatalf("%d documents, %v: %+v", len(docs), err, r)
	}
	r = run("fleet")
	file := filepath.Join(dir, "fleet/clusters/k8s/infrastructure/cilium.yaml")
	content, err := os.ReadFile(file)
	if r.code != ExitDone || err != nil || !strings.Contains(string(content), "version: 1.2.3") ||
		strings.Contains(string(content), "planted") {
		t.Fatalf("%+v, %v: %s", r, err, content)
	}
	for _, want := range []string{"clusters/k8s/infrastructure/cilium.yaml",
		"kube-system/talos-cloud-controller-manager: it " +
			"is not installed", "Secret flux-system/cilium-values", "init --initial-branch main", "add clusters/k8s", "push",
		"GIT_URL=", "GIT_PATH=clusters/k8s"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("it does not say %q: %s", want, r.stdout)
		}
	}
	before = folderContents(t, dir)
	var tree flux.Tree
	if r = run("fleet", "--output", "json"); json.Unmarshal([]byte(r.stdout), &tree) != nil || r.code != ExitDone ||
		len(tree.Files) != 8 || tree.Files[0].State != flux.Same || tree.Files[0].Content != "" ||
		folderContents(t, dir) != before {
		t.Errorf("again: %+v", r)
	}
	if err := os.WriteFile(file, []byte("mine: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before = folderContents(t, dir)
	if r = run("fleet"); r.code != ExitFailed || !strings.Contains(r.stderr, "clusters/k8s/infrastructure/cilium.yaml") ||
		folderContents(t, dir) != before {
		t.Errorf("a file that differs: %+v", r)
	}
	if r = run("fleet", "--dry-run"); r.code != ExitDone || !strings.Contains(r.stdout, "cilium.yaml (different)") {
		t.Errorf("a file that differs, --dry-run: %+v", r)
	}
	if r = run("fleet", "--force"); r.code != ExitDone || !strings.Contains(r.stdout, "replaced") {
		t.Errorf("--force: %+v", r)
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != string(content) {
		t.Errorf("--force: %v: %s", err, is)
	}
}

// TestGitopsInitRefuses: bad folders are exit code 2, and nothing changes.
func TestGitopsInitRefuses(t *testing.T) {
	api, dir := fluxCluster(t)
	deployCilium(t, api)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := folderContents(t, dir)
	for want, words := range map[string][]string{
		"needs DIR":              {},
		"file is a file":         {"file"},
		"is in the state folder": {".slipway/k8s/fleet"},
		"create the folder":      {"/proc/fleet"}, // where nobody can write
		"outside of the repos":   {"fleet", "GIT_PATH=../elsewhere"},
		"there is no kubeconfig": {"fleet", "CLUSTER_NAME=other"},
		"cannot be combined":     {"fleet", "another"},
	} {
		r := execute(t, t.Context(), dir, "", append([]string{"gitops", "init"}, words...)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want %q", words, r, want)
		}
	}
	if folderContents(t, dir) != before {
		t.Errorf("they left %s", folderContents(t, dir))
	}
}

// TestGitopsInitForARegistry: the tree goes to a registry as an artifact, with Flux's own command.
func TestGitopsInitForARegistry(t *testing.T) {
	api, dir := fluxCluster(t)
	deployCilium(t, api)
	r := execute(t, t.Context(), dir, "", "gitops", "init", "fleet", "GITOPS=flux", "GIT_URL=oci://registry.example/fleet",
		"OCI_TAG=v1.2.0")
	if r.code != ExitDone || strings.Contains(r.stdout, "git -C") || !strings.Contains(r.stdout,
		"flux push artifact oci://registry.example/fleet:v1.2.0 --path "+filepath.Join(dir, "fleet")) ||
		!strings.Contains(r.stdout, "flux-sync") {
		t.Errorf("%+v", r)
	}
}

// TestGitopsInitPushes: with the address of a repository it pushes a commit, once.
func TestGitopsInitPushes(t *testing.T) {
	api, dir := fluxCluster(t)
	deployCilium(t, api)
	repository := gitclonetest.New(t)
	const environment = "HCLOUD_TOKEN=planted-token CILIUM_REPOSITORY=https://me:planted-password@charts.example/mirror " +
		"GIT_TOKEN=" + gitclonetest.Token
	run := func(address string, words ...string) ran {
		t.Helper()
		r := execute(t, t.Context(), dir, environment, append([]string{"gitops", "init", address}, words...)...)
		if strings.Contains(r.stdout+r.stderr, gitclonetest.Token) {
			t.Errorf("the token is in the output: %+v", r)
		}
		return r
	}
	if r := run(repository.URL, "--dry-run"); r.code != ExitDone || repository.Git("for-each-ref") != "" {
		t.Fatalf("--dry-run: %+v", r)
	}
	var tree flux.Tree
	r := run(repository.URL, "--output", "json")
	if json.Unmarshal([]byte(r.stdout), &tree) != nil || r.code != ExitDone || tree.Dir != repository.URL ||
		tree.Commit != repository.Git("rev-parse", "main") {
		t.Fatalf("%+v", r)
	}
	content := repository.Git("show", "main:clusters/k8s/infrastructure/cilium.yaml")
	if !strings.Contains(content, "version: 1.2.3") || strings.Contains(content, "planted") {
		t.Errorf("it pushed %s", content)
	}
	r = run(repository.URL)
	if r.code != ExitDone || !strings.Contains(r.stdout, "nothing to push") || !strings.Contains(r.stdout,
		"flux-sync GITOPS=flux GIT_URL="+repository.URL) || repository.Git("rev-parse", "main") != tree.Commit {
		t.Errorf("again: %+v", r)
	}
	for address, says := range map[string]string{
		"https://user:planted-password@host/a.git": "has a user or a password",
		"ftp://host/a":           "is not the address",
		repository.URL + "-none": "read the repository",
	} {
		want := ExitUsage
		if says == "read the repository" {
			want = ExitFailed
		}
		if r := run(address); r.code != want || !strings.Contains(r.stderr, says) || strings.Contains(r.stderr, "planted") {
			t.Errorf("%s: %+v, want %d and %q", address, r, want, says)
		}
	}
	// Credentials that are configured for one repository are not sent to another.
	if r := run(repository.URL, "GIT_URL=https://elsewhere.example/fleet.git"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "read the repository") {
		t.Errorf("with the credentials of another repository: %+v", r)
	}
}
