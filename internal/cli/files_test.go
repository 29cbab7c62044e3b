package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// put writes a file of a test, with its folder.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// filesTold is what config files prints about the operator's own files.
func filesTold(t *testing.T, dir string, args ...string) map[string]render.SourceFile {
	t.Helper()
	r := execute(t, t.Context(), dir, "", append([]string{"config", "files", "--output", "json"}, args...)...)
	var answer struct{ Files []render.SourceFile }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != ExitDone {
		t.Fatalf("%v, %+v", err, r)
	}
	own := map[string]render.SourceFile{}
	for _, f := range answer.Files {
		if f.Use != render.FileBuiltIn {
			own[f.File] = f
		}
	}
	return own
}

const ownValues = "hubble: {ui: {enabled: false}}\n"

// The operator's files lie beside the configuration file, wherever the command is run.
func TestFilesLieBesideTheConfiguration(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	put(t, here, "bootstrap.yaml", "location: fsn1\n")
	put(t, here, "manifests/clusterctl.yaml", "providers: []\n")
	put(t, here, "bootstrap", "the built command")
	put(t, there, "k8s.yaml", "location: hel1\n")
	put(t, there, "bootstrap/cilium-values.yaml", ownValues)

	for name, tc := range map[string]struct {
		dir  string
		args []string
		want string
	}{
		"the working directory": {here, nil, filepath.Join(here, "manifests/clusterctl.yaml")},
		"beside --config": {here, []string{"--config", filepath.Join(there, "k8s.yaml")},
			filepath.Join(there, "bootstrap/cilium-values.yaml")},
		"--config, relative": {filepath.Dir(there), []string{"--config", filepath.Base(there) + "/k8s.yaml"},
			filepath.Join(there, "bootstrap/cilium-values.yaml")},
		"--dir": {here, []string{"--dir", there}, filepath.Join(there, "bootstrap/cilium-values.yaml")},
		"--dir before --config": {here, []string{"--dir", here, "--config", filepath.Join(there, "k8s.yaml")},
			filepath.Join(here, "manifests/clusterctl.yaml")},
		"a folder with neither": {here, []string{"--dir", "manifests"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			for _, f := range filesTold(t, tc.dir, tc.args...) {
				paths = append(paths, f.Path)
			}
			if tc.want == "" && len(paths) > 0 || tc.want != "" && !slices.Equal(paths, []string{tc.want}) {
				t.Errorf("used %q, want %q", paths, tc.want)
			}
		})
	}
	// The default configuration file is the working directory's, and not the process's.
	if r := execute(t, t.Context(), here, "", "config", "show"); !strings.Contains(r.stdout,
		"bootstrap.yaml:1:11 (default nbg1)") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"--dir", "nowhere"}, {"--dir", "bootstrap.yaml"}} {
		if r := execute(t, t.Context(), here, "", append([]string{"config", "files"}, args...)...); r.code != ExitUsage ||
			!strings.Contains(r.stderr, "--dir "+args[1]) {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestConfigFilesListsThem(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "bootstrap/cilium-values.yaml", ownValues)
	put(t, dir, "manifests/pools.yaml",
		"apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineHealthCheck\nmetadata: {name: x, namespace: default}\n")
	put(t, dir, "manifests/oidc-patch.yaml", "cluster: {}\n")
	own := filesTold(t, dir)
	for file, use := range map[string]render.FileUse{
		"bootstrap/cilium-values.yaml": render.FileMerged, "manifests/pools.yaml": render.FileAdded,
		"manifests/oidc-patch.yaml": render.FileReplaces,
	} {
		if f := own[file]; f.Use != use || f.Path != filepath.Join(dir, file) || f.Same {
			t.Errorf("%s: %+v", file, f)
		}
	}
	text := execute(t, t.Context(), dir, "", "config", "files")
	for _, says := range []string{"manifests/cluster.yaml", "built-in", "merged", "added", "replaces",
		filepath.Join(dir, "manifests/pools.yaml"), "of " + dir} {
		if !strings.Contains(text.stdout, says) {
			t.Errorf("%q is not in\n%s", says, text.stdout)
		}
	}
	plan := execute(t, t.Context(), dir, "", "plan", "--lab")
	line := "files: " + filepath.Join(dir, "manifests/oidc-patch.yaml") + " (in place of the built-in one), " +
		filepath.Join(dir, "bootstrap/cilium-values.yaml") + " (merged over the built-in values), " +
		filepath.Join(dir, "manifests/pools.yaml") + " (applied besides); built-in: the other 11\n"
	if plan.code != ExitDone || !strings.Contains(plan.stdout, line) {
		t.Errorf("the plan does not say %q: %+v", line, plan)
	}
	if r := execute(t, t.Context(), t.TempDir(), "", "plan", "--lab"); r.code != ExitDone ||
		strings.Contains(r.stdout, "files:") {
		t.Errorf("without files of one's own: %+v", r)
	}
}

// What is known from the files alone ends a run before it makes anything.
func TestBadFilesEndARunBeforeItBegins(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, says string }{
		"unfit values": {"bootstrap/cilium-values.yaml", "kubeProxyReplacement: false\n",
			"bootstrap/cilium-values.yaml: kubeProxyReplacement is false, not true"},
		"a typo": {"bootstrap/cilium-value.yaml", "x: 1\n", "did you mean cilium-values.yaml?"},
		"another kind's file": {"manifests/app.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: default}\n",
			"app.yaml: Pod "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"--lab"}, {"plan", "--lab"}} {
				dir := t.TempDir()
				put(t, dir, tc.file, tc.text)
				r := execute(t, t.Context(), dir, "", args...)
				if r.code != ExitUsage || !strings.Contains(r.stderr, tc.says) || !strings.Contains(r.stderr, dir) {
					t.Errorf("%v: %+v", args, r)
				}
				if _, err := os.Stat(filepath.Join(dir, statedir.StateFolderIn)); err == nil {
					t.Error("a state folder was made")
				}
			}
		})
	}
}

func TestBuiltInFilesAreWritten(t *testing.T) {
	dir := t.TempDir()
	r := execute(t, t.Context(), dir, "", "config", "files", "--out", "mine", "--output", "json")
	var answer struct {
		Dir     string
		Written []string
	}
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != ExitDone || len(answer.Written) != 13 ||
		answer.Dir != filepath.Join(dir, "mine") {
		t.Fatalf("%v, %+v", err, r)
	}
	for file, f := range filesTold(t, dir, "--dir", "mine") {
		if !f.Same {
			t.Errorf("%s is not the built-in file", file)
		}
	}
	if n := len(filesTold(t, dir, "--dir", "mine")); n != 13 {
		t.Errorf("%d files are used", n)
	}

	for name, tc := range map[string]struct{ file, says string }{
		"one is there already": {"manifests/oidc-patch.yaml",
			"manifests/oidc-patch.yaml is there already: nothing is written"},
		"a file of that name": {"bootstrap",
			"bootstrap is a file, and the built-in files need a folder of this name: nothing is written"},
		"a folder in its place": {"bootstrap/schematic.yaml/x", "bootstrap/schematic.yaml is there already"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "x")
			put(t, dir, tc.file, "my own")
			r := execute(t, t.Context(), dir, "", "config", "files", "--out", ".")
			if r.code != ExitUsage || !strings.Contains(r.stderr, tc.says) {
				t.Errorf("%+v", r)
			}
			count := 0
			_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, _ error) error {
				if !e.IsDir() {
					count++
				}
				return nil
			})
			if count != 1 {
				t.Errorf("%d files lie there now", count)
			}
		})
	}
	put(t, dir, "afile", "x")
	if r := execute(t, t.Context(), dir, "", "config", "files", "--out", "afile"); r.code != ExitUsage ||
		!strings.Contains(r.stderr, "afile") {
		t.Errorf("into a file: %+v", r)
	}
}
