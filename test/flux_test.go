package test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/config"
)

// TestFlux bootstraps a cluster of one server that Flux applies the lab's Git repository to: a commit reaches the
// cluster, also one with a Helm release, and a second run changes nothing. Its programs take a quarter of an hour to
// build and are in no plain `lab build`: it is skipped where they are not there.
func TestFlux(t *testing.T) {
	needFlux(t)
	c := newCommand(t)
	args := []string{"bootstrap", "--lab", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1"}
	first := c.run(nil, args...)
	if first.exit != 0 {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	done := first.steps("step-done")
	for _, order := range [][2]string{{"wait-nodes", "flux"}, {"cilium", "flux"}, {"flux", "flux-sync"}} {
		if a, b := slices.Index(done, order[0]), slices.Index(done, order[1]); a < 0 || b < a {
			t.Errorf("%s is not done after %s: %v", order[1], order[0], done)
		}
	}
	var info struct {
		Git               struct{ URL, User, Token string }
		ChartRepositories map[string]string
	}
	c.labGet("/v1/info", &info)
	if strings.Contains(first.output, info.Git.Token) {
		t.Error("the repository's token is in the output")
	}
	fluxIsReal(t, c, info.Git.URL)

	client := workload(t, c)
	ctx := t.Context()
	seed, err := client.CoreV1().ConfigMaps("flux-system").Get(ctx, "cluster", metav1.GetOptions{})
	if err != nil || seed.Data["name"] != "k8s" {
		t.Errorf("what the repository began with: %v, %v", seed, err)
	}

	// A commit reaches the cluster, and a Helm release in it is installed by the helm-controller.
	commit(t, info.Git.URL, info.Git.User, info.Git.Token, "clusters/k8s/apps.yaml", fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: of-the-commit, namespace: default}
data: {colour: blue}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: lab, namespace: flux-system}
spec: {interval: 1h, url: %q}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: metrics-server, namespace: flux-system}
spec:
  interval: 1h
  targetNamespace: kube-system
  storageNamespace: kube-system
  releaseName: metrics-server
  chart: {spec: {chart: metrics-server, version: 3.13.0, sourceRef: {kind: HelmRepository, name: lab}}}
`, info.ChartRepositories[config.AddonMetricsServer]))
	eventually(t, "the commit in the cluster", 4*time.Minute, func(ctx context.Context) string {
		o, err := client.CoreV1().ConfigMaps("default").Get(ctx, "of-the-commit", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if o.Data["colour"] != "blue" {
			return fmt.Sprintf("its data are %v", o.Data)
		}
		return ""
	})
	eventually(t, "the Helm release of the commit", 4*time.Minute, func(ctx context.Context) string {
		records, err := client.CoreV1().Secrets("kube-system").List(ctx,
			metav1.ListOptions{LabelSelector: "owner=helm,name=metrics-server,status=deployed"})
		if err != nil {
			return err.Error()
		}
		if len(records.Items) != 1 {
			return fmt.Sprintf("%d deployed revisions", len(records.Items))
		}
		return ""
	})

	handOver(t, c, info.Git.URL, info.Git.User, info.Git.Token)
	strategyFlip(t, c, info.Git.URL, info.Git.User, info.Git.Token)
	second := c.run(nil, args...)
	if second.exit != 0 {
		t.Fatalf("a second run: exit %d\n%s", second.exit, second.output)
	}
	for _, step := range []string{"flux", "flux-sync", "talos-ccm"} {
		if again := second.steps("step-started"); slices.Contains(again, step) {
			t.Errorf("a second run has run %v", again)
		}
	}
}

// handOver commits the release of the Talos cloud controller manager, which the bootstrap installed, as a HelmRelease:
// Flux takes it over as a new revision, with the same Pods. The HelmRepository is that of an earlier commit.
func handOver(t *testing.T, c *command, address, user, token string) {
	t.Helper()
	const name = "talos-cloud-controller-manager"
	client := workload(t, c)
	records := storage.Init(driver.NewSecrets(client.CoreV1().Secrets("kube-system")))
	was, err := records.Deployed(name)
	if err != nil {
		t.Fatal(err)
	}
	pods := func() (uids []string) {
		list, err := client.CoreV1().Pods("kube-system").List(t.Context(),
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%d Pods of %s, %v", len(list.Items), name, err)
		}
		for _, p := range list.Items {
			uids = append(uids, string(p.UID))
		}
		slices.Sort(uids)
		return uids
	}
	before := pods()
	values, err := json.Marshal(was.Config)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, address, user, token, "clusters/k8s/talos-ccm.yaml", fmt.Sprintf(`apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: talos-ccm, namespace: flux-system}
spec:
  interval: 1h
  releaseName: %[1]s
  targetNamespace: kube-system
  storageNamespace: kube-system
  chart: {spec: {chart: %[1]s, version: %[2]s, sourceRef: {kind: HelmRepository, name: lab}}}
  values: %[3]s
`, name, was.Chart.Metadata.Version, values))
	eventually(t, "Flux to take the release over", 4*time.Minute, func(context.Context) string {
		is, err := records.Deployed(name)
		switch {
		case err != nil:
			return err.Error()
		case is.Version != was.Version+1:
			return fmt.Sprintf("it is at revision %d", is.Version)
		}
		return ""
	})
	if after := pods(); !slices.Equal(before, after) {
		t.Errorf("Pods %v became %v", before, after)
	}
}

// strategyFlip commits a Deployment, and then another strategy of it, which server-side apply cannot merge: flux-sync
// ends at once and says what to do. That done, it has applied the commit.
func strategyFlip(t *testing.T, c *command, address, user, token string) {
	t.Helper()
	client := workload(t, c)
	strategy := func(spec string) {
		t.Helper()
		commit(t, address, user, token, "clusters/k8s/web.yaml", `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 0
  strategy: `+spec+`
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
`)
	}
	sync := []string{"flux-sync", "--lab", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1"}
	strategy("{type: RollingUpdate}")
	eventually(t, "the Deployment of the commit", 4*time.Minute, func(ctx context.Context) string {
		if _, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	strategy("{type: Recreate}")
	// Until the source-controller has read the commit, the step finds the one before applied.
	var failed outcome
	eventually(t, "flux-sync to fail", 4*time.Minute, func(context.Context) string {
		if failed = c.run(nil, sync...); failed.exit == 0 {
			return failed.output
		}
		return ""
	})
	for _, says := range []string{"spec.strategy.rollingUpdate: Forbidden",
		"the update strategy of Deployment web was changed from RollingUpdate to Recreate",
		"kubectl --namespace default patch deployment web --type merge"} {
		if failed.exit != 1 || !strings.Contains(failed.output, says) {
			t.Errorf("exit %d, it does not say %q\n%s", failed.exit, says, failed.output)
		}
	}
	_, err := client.AppsV1().Deployments("default").Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.run(nil, sync...); r.exit != 0 {
		t.Errorf("exit %d\n%s", r.exit, r.output)
	}
	web, err := client.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || web.Spec.Strategy.Type != "Recreate" {
		t.Errorf("%v, %v", web, err)
	}
}

// fluxIsReal asserts that the lab's status says what the controllers are, and where the repository is.
func fluxIsReal(t *testing.T, c *command, repository string) {
	t.Helper()
	var status struct {
		Parts []struct{ Name, Fidelity, Detail string }
	}
	c.labGet("/v1/status", &status)
	for _, want := range []struct{ name, fidelity, says string }{
		{"source-controller", "real", "github.com/fluxcd/source-controller v1.7.3"},
		{"kustomize-controller", "real", "github.com/fluxcd/kustomize-controller v1.7.2"},
		{"helm-controller", "real", "github.com/fluxcd/helm-controller v1.4.3"},
		{"Git server", "stand-in", repository},
	} {
		if !slices.ContainsFunc(status.Parts, func(p struct{ Name, Fidelity, Detail string }) bool {
			return p.Name == want.name && p.Fidelity == want.fidelity && strings.Contains(p.Detail, want.says)
		}) {
			t.Errorf("the lab's status does not say %v: %v", want, status.Parts)
		}
	}
}

// commit pushes a file to the lab's repository, as an operator does.
func commit(t *testing.T, address, user, token, file, content string) {
	t.Helper()
	commitFiles(t, address, user, token, map[string]string{file: content})
}

// commitFiles pushes files to the lab's repository.
func commitFiles(t *testing.T, address, user, token string, files map[string]string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, token)
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, filepath.Dir(dir), token, "clone", "--quiet", u.String(), dir)
	pushFiles(t, dir, token, files)
}

// pushFiles commits files to a clone, and pushes them. hidden is not to be shown.
func pushFiles(t *testing.T, clone, hidden string, files map[string]string) {
	t.Helper()
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(clone, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(clone, name), []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(t, clone, hidden, "add", ".")
	git(t, clone, hidden, "commit", "--quiet", "--message", "Change "+strings.Join(names, ", "))
	git(t, clone, hidden, "push", "--quiet", "origin", "HEAD")
}

// git runs Git in a folder, and returns what it prints.
func git(t *testing.T, in, hidden string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=test",
		"-c", "user.email=test@localhost"}, args...)...)
	command.Dir, command.Env = in, append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", args[0], err, strings.ReplaceAll(string(out), hidden, "[hidden]"))
	}
	return string(out)
}
