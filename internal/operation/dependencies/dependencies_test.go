package dependencies

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// TestForty: what was written agrees; each change is found, and no other.
func TestForty(t *testing.T) {
	dir := forty(t)
	file := filepath.Join(dir, "deps.list")
	tree := read(t, dir)
	if len(tree.Objects) != 42 || tree.Ignored != 41 {
		t.Fatalf("%d objects, %d others", len(tree.Objects), tree.Ignored)
	}
	if err := ListOf(tree, nil).Write(file); err != nil {
		t.Fatal(err)
	}
	if r := audit(t, dir); len(r.Findings) != 0 || r.Drift() != nil || r.Objects != 42 || r.Dependencies != 45 {
		t.Fatalf("%d dependencies, %v: %s", r.Dependencies, r.Drift(), strings.Join(says(r), "\n"))
	}
	// An added edge that makes a cycle with r04 → r02, an object that the list lacks, an inner wait that is too long.
	put(t, dir, "apps/r02.yaml", release("r02", "  timeout: 3m\n", "r00", "r04"))
	put(t, dir, "apps/new.yaml", release("new", ""))
	put(t, dir, "apps/r06.yaml", release("r06", "  timeout: 20m\n", "r04"))
	put(t, dir, "apps/r08.yaml", release("r08", "  timeout: 3m\n")) // without r06
	put(t, dir, "infra/charts/r01.yaml", release("r01", "  timeout: 3m\n", "nowhere", "flux-system/r03"))
	if err := os.Remove(filepath.Join(dir, "apps/r38.yaml")); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "apps/kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "apps/kustomization.yaml", strings.Replace(string(list), "r38", "new", 1))
	r := audit(t, dir)
	has(t, r, AddedEdge, "HelmRelease apps/r02", "HelmRelease apps/r04", "deps.list:", "apps/r02.yaml:2")
	has(t, r, Cycle, "HelmRelease apps/r02", "apps/r02 → apps/r04 → apps/r02")
	has(t, r, Unlisted, "HelmRelease apps/new", "apps/new.yaml:2")
	has(t, r, LongerInside, "HelmRelease apps/r06", "20m00s (spec.timeout)", "Kustomization flux-system/apps", "15m00s (spec.timeout)")
	has(t, r, MissingEdge, "HelmRelease apps/r08", "HelmRelease apps/r06", "deps.list:")
	has(t, r, NotThere, "HelmRelease apps/r01", "HelmRelease apps/nowhere")
	has(t, r, NotThere, "HelmRelease apps/r01", "HelmRelease flux-system/r03", "there is HelmRelease apps/r03")
	has(t, r, AddedEdge, "HelmRelease apps/r01", "apps/nowhere")
	has(t, r, AddedEdge, "HelmRelease apps/r01", "flux-system/r03")
	has(t, r, Gone, "HelmRelease apps/r38", "deps.list:")
	if len(r.Findings) != 10 || r.Drift() == nil {
		t.Errorf("%d findings:\n%s", len(r.Findings), strings.Join(says(r), "\n"))
	}
	var page strings.Builder
	if err := r.Print(&page, 0); err != nil || !strings.Contains(page.String(), "apps/r02 → apps/r04 → apps/r02") ||
		!strings.Contains(page.String(), "not known: how long the hooks") {
		t.Errorf("%v: %s", err, page.String())
	}
}

func TestWaits(t *testing.T) {
	dir := repo(t)
	put(t, dir, "clusters/a.yaml", kustomization("apps", "apps", "  wait: true\n")+ // 10m less 30s
		kustomization("checked", "elsewhere", "  timeout: 4m\n  healthChecks:\n    - {apiVersion: helm.toolkit.fluxcd.io/v2, "+
			"kind: HelmRelease, name: checked, namespace: apps}\n")+
		kustomization("lazy", "lazy", "  timeout: 1m\n")+
		kustomization("vars", "vars", "  wait: true\n  timeout: ${TIMEOUT}\n"))
	put(t, dir, "apps/a.yaml", release("default", "")+release("long", "  upgrade: {timeout: 9m31s}\n")+
		release("fits", "  install: {timeout: 9m30s}\n")+
		release("hooks", "  install: {timeout: 4m}\n  values: {job: {activeDeadlineSeconds: 270}, other: [{activeDeadlineSeconds: 5}]}\n"))
	put(t, dir, "apps/b.yaml", strings.Replace(release("noted", "  timeout: 2m\n"), "metadata:",
		"metadata:\n  annotations: {slipway.dev/hook-timeout: 3m}", 1)+
		release("cert-manager", "  timeout: 1m\n  chart: {spec: {chart: cert-manager}}\n  values: {startupapicheck: {timeout: 2m}}\n")+
		release("jobs", "  timeout: 90s\n")+
		"---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  namespace: apps\n  labels: "+
		"{app.kubernetes.io/instance: jobs}\n  annotations: {helm.sh/hook: pre-upgrade}\nspec: {activeDeadlineSeconds: 120}\n")
	put(t, dir, "lazy/a.yaml", release("lazy", "  timeout: 2h\n"))
	put(t, dir, "vars/a.yaml", release("vars", "  timeout: 2h\n"))
	put(t, dir, "other/a.yaml", release("checked", "")+release("lonely", "  timeout: 2h\n"))
	tree := read(t, dir)
	r := Audit(tree, ListOf(tree, nil), "deps.yaml")
	has(t, r, LongerInside, "HelmRelease apps/long", "9m31s (spec.upgrade.timeout)", "9m30s (Flux's default", "spec.interval less 30s")
	has(t, r, LongerInside, "HelmRelease apps/hooks", "4m30s (spec.values.job.activeDeadlineSeconds)", "4m00s (spec.install.timeout)")
	has(t, r, LongerInside, "HelmRelease apps/noted", "3m00s (annotation slipway.dev/hook-timeout)", "2m00s (spec.timeout)")
	has(t, r, LongerInside, "HelmRelease apps/cert-manager", "2m00s (spec.values.startupapicheck.timeout)", "1m00s")
	has(t, r, LongerInside, "HelmRelease apps/jobs", "hook Job apps/migrate", "1m30s")
	has(t, r, LongerInside, "HelmRelease apps/checked", "5m00s (Flux's default of spec.timeout)", "Kustomization flux-system/checked", "4m00s")
	if len(r.Findings) != 6 {
		t.Errorf("%d findings:\n%s", len(r.Findings), strings.Join(says(r), "\n"))
	}
	unknown := map[string]string{}
	for _, u := range r.Unknown {
		unknown[u.Object] += u.Says + "; "
	}
	for object, part := range map[string]string{"HelmRelease apps/default": "hooks of its chart",
		"Kustomization flux-system/vars": "neither spec.timeout", "HelmRelease apps/lonely": "which Kustomization applies it"} {
		if !strings.Contains(unknown[object], part) {
			t.Errorf("it does not say of %s that %q is not known: %v", object, part, unknown[object])
		}
	}
	if s := unknown["HelmRelease apps/hooks"]; s != "" {
		t.Errorf("of hooks it is not known: %s", s)
	}
}

func TestDuplicates(t *testing.T) {
	dir := repo(t)
	put(t, dir, "a.yaml", release("a", "", "b", "apps/b")+release("b", ""))
	put(t, dir, "b.yaml", release("a", ""))
	tree := read(t, filepath.Join(dir, "a.yaml"), dir, filepath.Join(dir, "a.yaml"))
	r := Audit(tree, ListOf(tree, nil), "deps.yaml")
	has(t, r, Duplicate, "HelmRelease apps/a", "spec.dependsOn[1]", "a.yaml:2")
	has(t, r, Duplicate, "HelmRelease apps/a", "it is there already", "a.yaml:2 at", "b.yaml:2")
	if len(r.Findings) != 2 || len(tree.Objects) != 3 {
		t.Errorf("%s", strings.Join(says(r), "\n"))
	}
}

func TestCycles(t *testing.T) {
	dir := repo(t)
	put(t, dir, "a.yaml", release("self", "", "self")+release("a", "", "b")+release("b", "", "c")+release("c", "", "a", "b")+
		release("in", "", "a")+release("p", "", "q")+release("q", "", "p"))
	tree := read(t, dir)
	r := Audit(tree, ListOf(tree, nil), "deps.yaml")
	has(t, r, Cycle, "HelmRelease apps/self", "apps/self → apps/self")
	has(t, r, Cycle, "HelmRelease apps/a", "apps/a → apps/b → apps/c → apps/a")
	has(t, r, Cycle, "HelmRelease apps/p", "apps/p → apps/q → apps/p")
	if len(r.Findings) != 3 {
		t.Errorf("%s", strings.Join(says(r), "\n"))
	}
	if _, err := Draw(tree, "svg"); err == nil || !strings.Contains(err.Error(), "there is a cycle") {
		t.Errorf("svg: %v", err)
	}
	if drawn, err := Draw(tree, "mermaid"); err != nil || strings.Count(drawn, "-.->") != 8 {
		t.Errorf("%v: %s", err, drawn)
	}
}

// TestKinds: a dependency is of the kind of its object, and its namespace by default that of it.
func TestKinds(t *testing.T) {
	dir := repo(t)
	put(t, dir, "a.yaml", release("a", "", "infra")+kustomization("infra", "infra", "")+
		strings.Replace(release("infra", ""), "namespace: apps", "namespace: flux-system", 1)+
		strings.Replace(release("bare", "", "other"), "  namespace: apps\n", "", 1))
	tree := read(t, dir)
	r := Audit(tree, ListOf(tree, nil), "deps.yaml")
	has(t, r, NotThere, "HelmRelease apps/a", "HelmRelease apps/infra", "there is HelmRelease flux-system/infra")
	has(t, r, NotThere, "HelmRelease default/bare", "HelmRelease default/other")
}

func TestBadInput(t *testing.T) {
	for content, want := range map[string]string{
		"a: b\nc: [\n":                                  "bad.yaml: line 2: did not find",
		"a: b\n---\n\ta: tab\n":                         "bad.yaml: line 3",
		release("a", "  timeout: soon\n"):               `bad.yaml:2: HelmRelease apps/a: spec.timeout: "soon"`,
		release("a", "  timeout: 300\n"):                `"300" is no duration`,
		release("a", "  dependsOn: b\n"):                "bad.yaml:2: HelmRelease: line 9",
		release("a", "  dependsOn: [{name: }]\n"):       "spec.dependsOn[0].name is missing",
		release("", ""):                                 "metadata.name is missing",
		release("a/b", ""):                              `"a/b" is no name`,
		release("a", "  install: {timeout: \"-1s\"}\n"): "spec.install.timeout",
	} {
		dir := repo(t)
		put(t, dir, "good.yaml", release("good", ""))
		put(t, dir, "bad.yaml", content)
		_, err := Read([]string{dir}, "default")
		var is *usage.Error
		if !errors.As(err, &is) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "bad.yaml") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	if _, err := Read([]string{"nowhere"}, "default"); !errors.As(err, new(*usage.Error)) {
		t.Errorf("no file: %v", err)
	}
}

func TestExpected(t *testing.T) {
	e, err := parseExpected([]byte("# why\n\n# more\nhelmReleases:\n  apps/a: [b, db/c]\n  apps/b: d # short\n  apps/d:\n" +
		"kustomizations:\n  flux-system/apps:\n    - infra\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "# why\n\n# more\nhelmReleases:\n  apps/a: [b, db/c]\n  apps/b: [d]\n  apps/d: []\nkustomizations:\n" +
		"  flux-system/apps: [infra]\n"
	if e.String() != want {
		t.Errorf("%s", e)
	}
	if e.DependsOn[Key{Kustomization, "flux-system", "apps"}][0] != (Key{Kustomization, "flux-system", "infra"}) {
		t.Errorf("%v", e.DependsOn)
	}
	for content, want := range map[string]string{
		"helmReleases:\n  a: []\n":                  `2: "a" is no namespace/name`,
		"helmReleases:\n  a/b: []\n  a/b: []\n":     "3: a/b is in helmReleases twice, first in line 2",
		"helmReleases:\n  a/b: [c, {d: e}]\n":       "2: a dependency of HelmRelease a/b",
		"helmReleases:\n  a/b: [c, a/c]\n":          "2: HelmRelease a/b has the dependency a/c twice",
		"releases: {}\n":                            `1: "releases" is neither`,
		"- a\n":                                     "1: the list is no mapping",
		"helmReleases: [a]\n":                       "1: helmReleases is no mapping",
		"helmReleases: {a/b: [}\n":                  "line 1",
		"helmReleases: {}\n---\nhelmReleases: {}\n": "second document",
	} {
		if _, err := parseExpected([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

// TestWrite keeps the comments at the top, orders, and writes what is read back.
func TestWrite(t *testing.T) {
	dir := repo(t)
	put(t, dir, "a.yaml", release("z", "", "m", "db/y")+release("true", "")+release("m", "", "a-name-that-is-long-enough-to-fill-lines",
		"another-name-that-is-long-enough", "a-third-name-that-is-long-enough-to-fill")+release("${name}", ""))
	file := filepath.Join(dir, "deps.list")
	put(t, dir, "deps.list", "# ours\n# (owner: platform)\nhelmReleases:\n  # gone\n  apps/old: []\n")
	older, err := ReadExpected(file)
	if err != nil {
		t.Fatal(err)
	}
	tree := read(t, dir)
	if err := ListOf(tree, older).Write(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	want := "# ours\n# (owner: platform)\nhelmReleases:\n  \"apps/${name}\": []\n  apps/m:\n" +
		"    - a-name-that-is-long-enough-to-fill-lines\n    - a-third-name-that-is-long-enough-to-fill\n" +
		"    - another-name-that-is-long-enough\n  apps/true: []\n  apps/z: [m, db/y]\n"
	if err != nil || string(data) != want {
		t.Errorf("%v: %s", err, data)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	for _, f := range audit(t, dir).Findings {
		if f.Kind.ofTheList() {
			t.Errorf("%+v", f)
		}
	}
}

func TestLive(t *testing.T) {
	api := kubetest.New("uid", kubetest.Resource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: HelmRelease,
		Plural: "helmreleases"}, kubetest.Resource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: Kustomization,
		Plural: "kustomizations"})
	defer api.Close()
	api.Put(kubetest.Object("helm.toolkit.fluxcd.io/v2", HelmRelease, "apps", "a", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{nameLabel: "apps", namespaceLabel: "flux-system"}},
		"spec": map[string]any{"timeout": "20m", "dependsOn": []any{map[string]any{"name": "b"},
			map[string]any{"name": "c", "namespace": "db"}}}}))
	api.Put(kubetest.Object("kustomize.toolkit.fluxcd.io/v1", Kustomization, "flux-system", "apps", map[string]any{
		"spec": map[string]any{"interval": "10m", "wait": true}}))
	c, err := kube.Connect(api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Live(t.Context(), c)
	if err != nil || len(tree.Objects) != 2 || tree.Edges() != 2 {
		t.Fatalf("%+v, %v", tree, err)
	}
	r := Audit(tree, ListOf(tree, nil), "deps.yaml")
	has(t, r, NotThere, "HelmRelease apps/a", "HelmRelease apps/b")
	has(t, r, NotThere, "HelmRelease apps/a", "HelmRelease db/c")
	has(t, r, LongerInside, "HelmRelease apps/a", "20m00s", "9m30s")
	if len(api.Writes()) != 0 {
		t.Errorf("it wrote: %v", api.Writes())
	}
}

func TestDraw(t *testing.T) {
	tree := read(t, forty(t))
	for form, parts := range map[string][]string{
		"mermaid": {"flowchart TD", `["HelmRelease apps/r00"]`, "step_HelmReleaseX20appsX2Fr00 -.-> step_HelmReleaseX20appsX2Fr02"},
		"dot":     {"digraph", `"HelmRelease apps/r00" -> "HelmRelease apps/r02"`},
		"svg":     {"<svg", "HelmRelease apps/r39", "What Flux&#39;s objects depend on"},
	} {
		drawn, err := Draw(tree, form)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			if !strings.Contains(drawn, part) {
				t.Errorf("%s has no %q: %.2000s", form, part, drawn)
			}
		}
		decoder := xml.NewDecoder(strings.NewReader(drawn))
		for form == "svg" {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Draw(&Tree{Source: "x"}, "svg"); !errors.As(err, new(*usage.Error)) {
		t.Errorf("of nothing: %v", err)
	}
	put2 := repo(t)
	put(t, put2, "a.yaml", release("a", "", "gone"))
	if drawn, err := Draw(read(t, put2), "svg"); err != nil || !strings.Contains(drawn, "HelmRelease apps/gone (missing)") {
		t.Errorf("%v: %s", err, drawn)
	}
}

// FuzzRead: no input makes it panic, and a list that is written is read back.
func FuzzRead(f *testing.F) {
	f.Add(release("a", "  timeout: 3m\n  values: {a: [{activeDeadlineSeconds: 3}]}\n", "b", "c/d"))
	f.Add(kustomization("a", "./x", "  wait: true\n  healthChecks: [{kind: HelmRelease, name: a}]\n"))
	f.Add("apiVersion: v1\nkind: List\nitems: [{kind: HelmRelease, apiVersion: helm.toolkit.fluxcd.io/v2}]")
	f.Add("a: &a [*a]\n---\n? {}\n: -\n---\n<<: 3\nkind: {}\n")
	f.Add("helmReleases:\n  a/b: [c, d/e]\nkustomizations: null\n")
	f.Fuzz(func(t *testing.T, content string) {
		tree := &Tree{Source: "fuzz"}
		if err := tree.read([]byte(content), "a/fuzz.yaml", "default"); err != nil {
			return
		}
		tree.sorted()
		list := ListOf(tree, nil)
		again, err := parseExpected([]byte(list.String()))
		if err != nil || again.String() != list.String() {
			t.Fatalf("%v: it is read back as\n%s\nof\n%s", err, again, list)
		}
		Audit(tree, again, "deps.yaml")
		for _, form := range []string{"mermaid", "dot", "svg"} {
			_, _ = Draw(tree, form) // a cycle, or nothing to draw
		}
	})
}

// FuzzExpected: no list makes it panic, and one that is taken is written as it is read.
func FuzzExpected(f *testing.F) {
	f.Add("helmReleases:\n  a/b: [c, d/e]\nkustomizations: null\n")
	f.Add("# a\nhelmReleases: &x {a/b: c}\nkustomizations: *x\n")
	f.Fuzz(func(t *testing.T, content string) {
		e, err := parseExpected([]byte(content))
		if err != nil {
			return
		}
		if again, err := parseExpected([]byte(e.String())); err != nil || again.String() != e.String() {
			t.Fatalf("%v: it is read back as\n%s\nof\n%s", err, again, e)
		}
	})
}
