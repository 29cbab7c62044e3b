package dependencies

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repo is a folder with a .git, as the root of a repository has.
func repo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, dir, file, content string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// release is a HelmRelease as people write it.
func release(name string, more string, on ...string) string {
	s := "---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: " + name +
		"\n  namespace: apps\nspec:\n  interval: 1h\n" + more
	if len(on) > 0 {
		s += "  dependsOn:\n"
		for _, d := range on {
			namespace, name, ok := strings.Cut(d, "/")
			if !ok {
				s += "    - name: " + d + "\n"
				continue
			}
			s += "    - name: " + name + "\n      namespace: " + namespace + "\n"
		}
	}
	return s
}

func kustomization(name, path, more string) string {
	return "---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: " + name +
		"\n  namespace: flux-system\nspec:\n  interval: 10m\n  prune: true\n  path: " + path + "\n" + more
}

// forty is a tree of 40 HelmReleases in files of two folders, each of which depends on one or two before it, and two
// Kustomizations that wait for them.
func forty(t *testing.T) string {
	t.Helper()
	dir := repo(t)
	put(t, dir, "clusters/prod/apps.yaml", kustomization("apps", "./apps", "  wait: true\n  timeout: 15m\n  dependsOn:\n"+
		"    - name: infra\n")+kustomization("infra", "./infra", "  wait: true\n"))
	listed := ""
	for i := range 40 {
		folder := []string{"apps", "infra/charts"}[i%2]
		if i%2 == 0 {
			listed += fmt.Sprintf("  - r%02d.yaml\n", i)
		}
		var on []string
		if i > 1 {
			on = append(on, fmt.Sprintf("r%02d", i-2))
		}
		if i > 8 && i%5 == 0 {
			on = append(on, fmt.Sprintf("apps/r%02d", i-8))
		}
		put(t, dir, fmt.Sprintf("%s/r%02d.yaml", folder, i), "# a release\n"+release(fmt.Sprintf("r%02d", i), "  timeout: 3m\n", on...)+
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
	}
	put(t, dir, "apps/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"+listed)
	put(t, dir, ".github/workflow.yaml", "{{ no YAML }}: [")
	put(t, dir, "README.md", "no YAML: [")
	return dir
}

func read(t *testing.T, paths ...string) *Tree {
	t.Helper()
	tree, err := Read(paths, "default")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// audit reads a folder and compares it with the list in a file of it.
func audit(t *testing.T, dir string) Report {
	t.Helper()
	file := filepath.Join(dir, "deps.list")
	e, err := ReadExpected(file)
	if err != nil {
		t.Fatal(err)
	}
	return Audit(read(t, dir), e, file)
}

func says(r Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, string(f.Kind)+": "+f.Object+": "+f.Says)
	}
	return all
}

// has reports whether exactly one finding is of a kind, about an object, and says all the parts.
func has(t *testing.T, r Report, kind FindingKind, object string, parts ...string) {
	t.Helper()
	n := 0
	for _, f := range r.Findings {
		if f.Kind == kind && f.Object == object && !slices.ContainsFunc(parts, func(p string) bool {
			return !strings.Contains(f.Says+" at "+f.Place, p)
		}) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d findings %q of %s with %q among:\n%s", n, kind, object, parts, strings.Join(says(r), "\n"))
	}
}
