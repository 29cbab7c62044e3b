package flux

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/operation/dependencies"
)

const token = "planted-hetzner-token"

// environment is a cluster with Slipway's own releases, and an add-on, as Helm's records have them.
type environment struct {
	api     *kubetest.Server
	cluster *kube.Cluster
	cfg     config.Config
	dir     string
}

func newWorld(t *testing.T) *environment {
	t.Helper()
	w := &environment{api: kubetest.New("uid"), cfg: config.Defaults(), dir: filepath.Join(t.TempDir(), "fleet")}
	t.Cleanup(w.api.Close)
	var err error
	if w.cluster, err = kube.Connect(w.api.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	wait := false
	w.cfg.Addons = config.Addons{{Name: "metrics-server"}, {Name: "shop", Chart: "shop-chart",
		Repository: "https://me:planted-password@charts.example/stable", Version: "1.0.0", Namespace: "shop",
		After: []string{"metrics-server"}, Wait: &wait, Timeout: config.Duration(40 * time.Minute)}}
	w.record(t, "kube-system", "cilium", "cilium", "1.18.9", map[string]any{"ipam": map[string]any{"mode": "kubernetes"},
		"k8sServicePort": 7445, "caps": []any{"NET_ADMIN", "CHOWN"}})
	w.record(t, "kube-system", "hcloud-cloud-controller-manager", "hcloud-cloud-controller-manager", "1.29.2",
		as(t, "{env: {HCLOUD_TOKEN: {valueFrom: {secretKeyRef: {name: hcloud, key: token}}}}, args: {}}"))
	w.record(t, "kube-system", "talos-cloud-controller-manager", "talos-cloud-controller-manager", "0.5.4", nil)
	w.record(t, "shop", "shop", "shop-chart", "1.2.3", map[string]any{"replicas": 2, "admin": map[string]any{
		"password": "planted-admin-password", "user": "root"}, "note": "uses " + token, "list": []any{"a", token},
		"existingSecret": "shop", "automountToken": true})
	w.api.Put(kubetest.Object("v1", "Secret", "kube-system", "hcloud", map[string]any{"data": map[string]any{
		"token": base64.StdEncoding.EncodeToString([]byte(token))}}))
	return w
}

// record writes a deployed release, as Helm does.
func (w *environment) record(t *testing.T, namespace, name, ch, version string, values map[string]any) {
	t.Helper()
	w.keep(t, &release.Release{Name: name, Namespace: namespace, Version: 1, Config: values,
		Info:  &release.Info{Status: release.StatusDeployed},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: ch, Version: version}}})
}

func (w *environment) keep(t *testing.T, r *release.Release) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(w.api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Init(driver.NewSecrets(clients.CoreV1().Secrets(r.Namespace))).Create(r); err != nil {
		t.Fatal(err)
	}
}

// make makes the tree, and writes it where that is asked.
func (w *environment) make(t *testing.T, write bool) Tree {
	t.Helper()
	f, err := OpenFolder(w.dir, filepath.Join(filepath.Dir(w.dir), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	releases, left, err := ReadReleases(t.Context(), w.cluster, w.cfg, &redact.Redactor{})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := MakeTree(w.cfg, releases, left, f)
	if err != nil {
		t.Fatal(err)
	}
	if write {
		if err := tree.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// parsed reads a file of the written tree.
func (w *environment) parsed(t *testing.T, name string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "clusters", "k8s", name))
	if err != nil {
		t.Fatal(err)
	}
	o := map[string]any{}
	if err := yaml.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// as is what a text in YAML is.
func as(t *testing.T, text string) map[string]any {
	t.Helper()
	o := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestTree: every object, field by field, and no secret in any file.
func TestTree(t *testing.T) {
	w := newWorld(t)
	tree := w.make(t, true)
	for name, want := range map[string]string{
		"kustomization.yaml": "resources: [flux-system, infrastructure.yaml, apps.yaml]",
		"flux-system/kustomization.yaml": "resources: [helm-cilium-io.yaml, charts-hetzner-cloud.yaml, " +
			"ghcr-io-siderolabs-charts.yaml, charts-example-stable.yaml]",
		"infrastructure/kustomization.yaml": "resources: [cilium.yaml, hcloud-ccm.yaml, talos-ccm.yaml]",
		"apps/kustomization.yaml":           "resources: [shop.yaml]",
	} {
		want := as(t, want+"\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization")
		if is := w.parsed(t, name); !reflect.DeepEqual(is, want) {
			t.Errorf("%s: %v, want %v", name, is, want)
		}
	}
	const release, source = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n",
		"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\n"
	const flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n"
	const kept = ", annotations: {kustomize.toolkit.fluxcd.io/prune: disabled}}\n"
	const remediate = "  install: {remediation: {retries: 3}}\n  upgrade: {remediation: {retries: 3}}\n"
	const inSystem = "  interval: 1h\n  timeout: 15m\n  targetNamespace: kube-system\n  storageNamespace: kube-system\n"
	for name, want := range map[string]string{
		"flux-system/helm-cilium-io.yaml": source + "metadata: {name: helm-cilium-io, namespace: flux-system}\n" +
			"spec: {interval: 1h, timeout: 1m, url: 'https://helm.cilium.io'}",
		"flux-system/ghcr-io-siderolabs-charts.yaml": source +
			"metadata: {name: ghcr-io-siderolabs-charts, namespace: flux-system}\n" +
			"spec: {interval: 1h, timeout: 1m, type: oci, url: 'oci://ghcr.io/siderolabs/charts'}",
		"flux-system/charts-example-stable.yaml": source +
			"metadata: {name: charts-example-stable, namespace: flux-system}\n" +
			"spec: {interval: 1h, timeout: 1m, url: 'https://charts.example/stable', secretRef: {name: charts-example-stable}}",
		"infrastructure.yaml": flux + "metadata: {name: infrastructure, namespace: flux-system}\nspec: {interval: 10m, " +
			"retryInterval: 2m, timeout: 35m, prune: true, wait: true, path: ./clusters/k8s/infrastructure, sourceRef: {kind: " +
			"GitRepository, name: flux-system}}",
		"apps.yaml": flux + "metadata: {name: apps, namespace: flux-system}\nspec: {interval: 10m, retryInterval: 2m, " +
			"timeout: 45m, prune: true, wait: true, path: ./clusters/k8s/apps, sourceRef: {kind: GitRepository, name: " +
			"flux-system}, dependsOn: [{name: infrastructure}]}",
		"infrastructure/cilium.yaml": release + "metadata: {name: cilium, namespace: flux-system" + kept + "spec:\n" +
			inSystem +
			remediate + "  releaseName: cilium\n  chart: {spec: {chart: cilium, version: 1.18.9, interval: 1h, sourceRef: {kind: " +
			"HelmRepository, name: helm-cilium-io}}}\n" +
			"  values: {ipam: {mode: kubernetes}, k8sServicePort: 7445, caps: [NET_ADMIN, CHOWN]}",
		"infrastructure/hcloud-ccm.yaml": release + "metadata: {name: hcloud-ccm, namespace: flux-system" + kept + "spec:\n" +
			inSystem + remediate + "  releaseName: hcloud-cloud-controller-manager\n  dependsOn: [{name: cilium}]\n" +
			"  chart: {spec: {chart: hcloud-cloud-controller-manager, version: 1.29.2, interval: 1h, sourceRef: {kind: " +
			"HelmRepository, name: charts-hetzner-cloud}}}\n" +
			"  values: {env: {HCLOUD_TOKEN: {valueFrom: {secretKeyRef: {name: hcloud, key: token}}}}, args: {}}",
		"infrastructure/talos-ccm.yaml": release + "metadata: {name: talos-ccm, namespace: flux-system" + kept + "spec:\n" +
			inSystem + remediate + "  releaseName: talos-cloud-controller-manager\n  dependsOn: [{name: cilium}]\n" +
			"  chart: {spec: {chart: talos-cloud-controller-manager, version: 0.5.4, interval: 1h, sourceRef: {kind: " +
			"HelmRepository, name: ghcr-io-siderolabs-charts}}}",
		"apps/shop.yaml": release + "metadata: {name: shop, namespace: flux-system}\nspec:\n  interval: 1h\n  timeout: 40m\n" +
			"  releaseName: shop\n  targetNamespace: shop\n  storageNamespace: shop\n  dependsOn: [{name: cilium}]\n" +
			"  chart: {spec: {chart: shop-chart, version: 1.2.3, interval: 1h, sourceRef: {kind: HelmRepository, name: " +
			"charts-example-stable}}}\n  install: {createNamespace: true, disableWait: true, remediation: {retries: 3}}\n" +
			"  upgrade: {disableWait: true, remediation: {retries: 3}}\n  valuesFrom: [{kind: Secret, name: shop-values}]\n" +
			"  values: {replicas: 2, admin: {user: root}, existingSecret: shop, automountToken: true}",
	} {
		if is, want := w.parsed(t, name), as(t, want); !reflect.DeepEqual(is, want) {
			t.Errorf("%s:\n%v, want\n%v", name, is, want)
		}
	}
	if want := []LeftOut{{"kube-system/metrics-server", "it is not installed"}}; !reflect.DeepEqual(tree.LeftOut, want) {
		t.Errorf("left out: %+v", tree.LeftOut)
	}
	if len(tree.Files) != 14 {
		t.Errorf("%d files", len(tree.Files))
	}
	if len(tree.Secrets) != 2 || tree.Secrets[0].Name != "charts-example-stable" ||
		tree.Secrets[1].Name != "shop-values" ||
		!slices.Equal(tree.Secrets[1].Has, []string{"admin.password", "list", "note"}) {
		t.Errorf("Secrets: %+v", tree.Secrets)
	}
	secretsOfTheTree(t, w, tree)
	var out strings.Builder
	for _, dry := range []bool{true, false} {
		tree.DryRun = dry
		if err := tree.Print(&out, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range tree.Files {
		out.WriteString(f.Content)
	}
	if strings.Contains(out.String(), "planted") {
		t.Errorf("a secret is in the tree: %s", out.String())
	}
}

// secretsOfTheTree asserts that the Secrets that the tree names have what Git does not have, and nothing else.
func secretsOfTheTree(t *testing.T, w *environment, tree Tree) {
	t.Helper()
	releases, _, err := ReadReleases(t.Context(), w.cluster, w.cfg, &redact.Redactor{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := ReleaseSecrets(releases)
	if err != nil || len(all) != len(tree.Secrets) {
		t.Fatalf("%d Secrets, %v; the tree names %d", len(all), err, len(tree.Secrets))
	}
	for i, s := range all {
		if s.Name != tree.Secrets[i].Name || s.Namespace != "flux-system" {
			t.Errorf("Secret %s/%s; the tree names %s", s.Namespace, s.Name, tree.Secrets[i].Name)
		}
	}
	if string(all[0].Data["username"]) != "me" || string(all[0].Data["password"]) != "planted-password" {
		t.Errorf("of the chart repository: %v", all[0].Data)
	}
	want := as(t, "{admin: {password: planted-admin-password}, note: uses "+token+", list: [a, "+token+"]}")
	if is := as(t, string(all[1].Data["values.yaml"])); !reflect.DeepEqual(is, want) {
		t.Errorf("values that are secrets: %v, want %v", is, want)
	}
}

// Gitea, which may be where the tree is, is not uninstalled when it is removed from Git; other add-ons are.
func TestGiteaIsNotPruned(t *testing.T) {
	w := newWorld(t)
	w.cfg.Gitea = "true"
	w.record(t, "gitea", "gitea", "gitea", "12.7.0", map[string]any{"gitea": map[string]any{"admin": map[string]any{
		"existingSecret": "gitea-admin"}}, "note": "planted-gitea-password"})
	w.api.Put(kubetest.Object("v1", "Secret", "gitea", "gitea-admin", map[string]any{"data": map[string]any{
		"password": base64.StdEncoding.EncodeToString([]byte("planted-gitea-password"))}}))
	w.make(t, true)
	for name, kept := range map[string]bool{"apps/gitea.yaml": true, "apps/shop.yaml": false,
		"infrastructure/cilium.yaml": true} {
		o := unstructured.Unstructured{Object: w.parsed(t, name)}
		if is := o.GetAnnotations()[pruneAnnotation] == "disabled"; is != kept {
			t.Errorf("%s is kept: %v", name, is)
		}
		if text, err := o.MarshalJSON(); err != nil || strings.Contains(string(text), "planted") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}

// TestTreePassesTheAudit: every dependency is there, none waits in a circle, and no inner wait is longer than its
// outer.
func TestTreePassesTheAudit(t *testing.T) {
	w := newWorld(t)
	w.record(t, "kube-system", "metrics-server", "metrics-server", "3.13.0", nil)
	w.make(t, true)
	if err := os.Mkdir(filepath.Join(w.dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	tree, err := dependencies.Read([]string{w.dir}, "default")
	if err != nil {
		t.Fatal(err)
	}
	report := dependencies.Audit(tree, dependencies.ListOf(tree, nil), "deps.yaml")
	if len(report.Findings) != 0 || report.Objects != 7 || report.Dependencies != 6 {
		t.Errorf("%+v", report)
	}
	for _, u := range report.Unknown { // that a Kustomization applies each HelmRelease, and waits, is known
		if !strings.Contains(u.Says, "hooks of its chart") {
			t.Errorf("%+v", u)
		}
	}
}

// TestSecondRun writes nothing; a file that differs is a conflict, and none of the others is written then.
func TestSecondRun(t *testing.T) {
	w := newWorld(t)
	w.make(t, true)
	before := listing(t, w.dir)
	tree := w.make(t, true)
	if slices.ContainsFunc(tree.Files, func(f TreeFile) bool { return f.State != Same }) || listing(t, w.dir) != before {
		t.Errorf("%+v\n%s\n%s", tree.Files, before, listing(t, w.dir))
	}
	if err := tree.Conflict(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(w.dir, "clusters/k8s/infrastructure/cilium.yaml")
	if err := errors.Join(os.WriteFile(file, []byte("mine: true\n"), 0o600),
		os.Remove(filepath.Join(w.dir, "clusters/k8s/apps/shop.yaml"))); err != nil {
		t.Fatal(err)
	}
	tree = w.make(t, false)
	if err := tree.Conflict(); err == nil || !strings.Contains(err.Error(), "clusters/k8s/infrastructure/cilium.yaml") ||
		strings.Contains(err.Error(), "shop.yaml") {
		t.Errorf("the conflict is %v", err)
	}
	same := filepath.Join(w.dir, "clusters/k8s/apps.yaml")
	was, err := os.Stat(same)
	if err != nil {
		t.Fatal(err)
	}
	w.make(t, true) // --force
	if is, err := os.Stat(same); err != nil || !os.SameFile(was, is) {
		t.Errorf("it replaced a file that is the same: %v", err)
	}
	if got := listing(t, w.dir); !strings.Contains(got, "shop.yaml") || w.parsed(t,
		"infrastructure/cilium.yaml")["kind"] == nil {
		t.Errorf("it is %s", got)
	}
}

// listing has every file and folder with its time.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			b.WriteString(path + " " + info.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOthers: manifests that are there stay applied, and what kustomization.yaml lists stays listed.
func TestOthers(t *testing.T) {
	w := newWorld(t)
	put := func(name, content string) {
		t.Helper()
		file := filepath.Join(w.dir, "clusters/k8s", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("cluster.yaml", "kind: ConfigMap\n")
	put("more/a.yml", "kind: ConfigMap\n")
	put("whole/kustomization.yaml", "resources: [b.yaml]\n")
	put("whole/b.yaml", "kind: ConfigMap\n")
	put(".hidden/c.yaml", "kind: ConfigMap\n")
	put("notes.md", "text\n")
	put("apps/blog.yaml", "kind: ConfigMap\n")
	for range 2 {
		tree := w.make(t, true)
		if err := tree.Conflict(); err != nil {
			t.Fatal(err)
		}
		want := as(t, "a: [flux-system, infrastructure.yaml, apps.yaml, cluster.yaml, more/a.yml, whole]")["a"]
		if is := w.parsed(t, "kustomization.yaml")["resources"]; !reflect.DeepEqual(is, want) {
			t.Errorf("%v, want %v", is, want)
		}
		if is := w.parsed(t, "apps/kustomization.yaml")["resources"]; !reflect.DeepEqual(is, as(t,
			"a: [shop.yaml, blog.yaml]")["a"]) {
			t.Errorf("apps: %v", is)
		}
	}
	put("later.yaml", "kind: ConfigMap\n") // which the operator has not listed
	if err := new(w.make(t, false)).Conflict(); err != nil {
		t.Errorf("an unlisted manifest: %v", err)
	}
	put("apps/kustomization.yml", "")
	f, err := OpenFolder(w.dir, "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MakeTree(w.cfg, nil, nil, f); err == nil || !strings.Contains(err.Error(),
		"rename it to kustomization.yaml") {
		t.Errorf("two files for kustomize: %v", err)
	}
}

// TestLeftOut: releases that are not as Helm left them when all was well, and that nobody knows the repository of.
func TestLeftOut(t *testing.T) {
	w := newWorld(t)
	w.keep(t, &release.Release{Name: "shop", Namespace: "shop", Version: 2,
		Info:  &release.Info{Status: release.StatusPendingUpgrade},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "shop-chart", Version: "2.0.0"}}})
	w.record(t, "kube-system", "metrics-server", "another", "3.13.0", nil)
	w.record(t, "old", "old", "old", "1.0.0", nil)
	w.api.Change("v1", "Secret", "old", "sh.helm.release.v1.old.v1", map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{kube.OwnerAnnotation: "us"}}})
	w.record(t, "other", "other", "other", "1.0.0", nil) // of somebody else
	w.cfg.CiliumRepository = "/srv/charts"
	tree := w.make(t, true)
	want := []string{"kube-system/cilium: Flux cannot read its chart repository /srv/charts",
		"kube-system/metrics-server: it is chart another", "shop/shop: its newest revision, 2, is pending-upgrade",
		"old/old: the configuration does not have it"}
	if len(tree.LeftOut) != len(want) {
		t.Fatalf("%+v", tree.LeftOut)
	}
	for i, l := range tree.LeftOut {
		if !strings.HasPrefix(l.Release+": "+l.Why, want[i]) {
			t.Errorf("%+v, want %s", l, want[i])
		}
	}
	if spec := w.parsed(t, "infrastructure/talos-ccm.yaml")["spec"].(map[string]any); spec["dependsOn"] != nil {
		t.Errorf("it depends on a HelmRelease that is not there: %v", spec)
	}
}

// TestFolders that cannot get a tree are mistakes of the operator, and stay as they are.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "clone/.git"), 0o700), os.Mkdir(state, 0o700),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Symlink(state, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	for path, want := range map[string]string{"file": "is a file", "file/below": "not a directory",
		"state": "is in the state folder", "state/fleet": "is in the state folder", "link/fleet": "is in the state folder",
		"clone/fleet": "Flux's paths begin at its root"} {
		_, err := OpenFolder(filepath.Join(dir, path), state)
		var mistake *usage.Error
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if f, err := OpenFolder(filepath.Join(dir, "clone"), state); err != nil || !f.Git {
		t.Errorf("a working copy: %+v, %v", f, err)
	}
	if listing(t, dir) != before {
		t.Errorf("they left %s", listing(t, dir))
	}
	// Nothing can be created in /proc, by root neither.
	f, err := OpenFolder("/proc/fleet", state)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := MakeTree(config.Defaults(), nil, nil, f)
	if err != nil {
		t.Fatal(err)
	}
	var mistake *usage.Error
	if err := tree.Write(f); !errors.As(err, &mistake) {
		t.Errorf("a folder that cannot be written: %v", err)
	}
	// A symbolic link to elsewhere is not followed.
	if err := os.Symlink(state, filepath.Join(dir, "clone/clusters")); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFolder(filepath.Join(dir, "clone"), state); err != nil {
		t.Fatal(err)
	}
	if tree, err = MakeTree(config.Defaults(), nil, nil, f); err == nil {
		err = tree.Write(f)
	}
	if err == nil || strings.Contains(listing(t, state), "k8s") {
		t.Errorf("it wrote through a link: %v, %s", err, listing(t, state))
	}
	if left := listing(t, filepath.Join(dir, "clone")); strings.Contains(left, ".slipway") {
		t.Errorf("it left %s", left)
	}
}
