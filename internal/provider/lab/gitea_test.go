package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
)

// giteaSource is the source of a lab whose module of Gitea is a small one, with the files that Gitea's program reads.
func giteaSource(t *testing.T) (b *builder, home string) {
	t.Helper()
	home = t.TempDir()
	source := filepath.Join(home, "source")
	b = &builder{source: source, cache: filepath.Join(home, "cache"), env: os.Environ(), lab: filepath.Join(home, "lab"),
		sets: &imageSets{config: config.Defaults()}}
	for name, content := range map[string]string{
		"gitea/1.26/go.mod": "module example.com/lab/gitea\n\ngo 1.26\n\ntool code.gitea.io/gitea\n\n" +
			"require (\n\tcode.gitea.io/gitea v1.26.0\n)\n\nreplace code.gitea.io/gitea => ../../original\n",
		"gitea/1.26/go.sum": "",
		"original/go.mod":   "module code.gitea.io/gitea\n\ngo 1.26\n",
		"original/main.go":  "package main\n\nvar Version string\n\nfunc main() { println(Version, tagged) }\n",
		"original/tagged.go": "//go:build sqlite && sqlite_unlock_notify\n\npackage main\n\n" +
			"const tagged = \"with SQLite\"\n",
		"original/templates/home": "a template", "original/options/locale/en": "a locale", "original/public/robots": "",
		"../lab/lab.log": "",
	} {
		file := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o444); err != nil { // as in Go's module cache
			t.Fatal(err)
		}
	}
	return b, home
}

func quietly(string, ...any) {}

// Gitea's program has SQLite, its release's version, and beside it the files that it reads.
func TestGiteaProgram(t *testing.T) {
	b, _ := giteaSource(t)
	if err := b.giteaPossible(t.Context()); err != nil {
		t.Skip(err)
	}
	bin, err := b.gitea().build(t.Context(), b, quietly)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(bin, "gitea")).CombinedOutput(); string(out) != "1.26.0 with SQLite\n" {
		t.Errorf("%q, %v", out, err)
	}
	for file, want := range map[string]string{"templates/home": "a template", "options/locale/en": "a locale",
		"public/robots": ""} {
		if got, err := os.ReadFile(filepath.Join(bin, "static", file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
}

// A lab runs Gitea itself where Flux reads it, where it did before, and, a new one, where it is built. The others have
// the stand-in.
func TestGiteaToRun(t *testing.T) {
	b, _ := giteaSource(t)
	if err := b.giteaPossible(t.Context()); err != nil {
		t.Skip(err)
	}
	run := func() string {
		t.Helper()
		bin, err := b.gitea().toRun(t.Context(), b, quietly)
		if err != nil || filepath.Dir(filepath.Dir(bin)) != b.cache {
			t.Fatalf("%q, %v", bin, err)
		}
		return bin
	}
	b.sets.config.Gitea = "true"
	if bin := run(); Exists(bin) || b.gitea().recorded(b) {
		t.Error("Gitea is built for a configuration without Flux")
	}
	if err := b.gitea().built(t.Context(), b); err == nil || !strings.Contains(err.Error(), "lab build GITEA=true") {
		t.Errorf("configured, and not built: %v", err)
	}
	if _, err := b.gitea().buildConfigured(t.Context(), b, false, quietly); err != nil {
		t.Fatal(err)
	}
	if err := b.gitea().built(t.Context(), b); err != nil {
		t.Error(err)
	}
	began := filepath.Join(b.lab, "state.json")
	if err := os.WriteFile(began, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if run(); b.gitea().recorded(b) {
		t.Error("a lab that had the stand-in runs Gitea itself")
	}
	if err := os.Remove(began); err != nil {
		t.Fatal(err)
	}
	if run(); !b.gitea().recorded(b) {
		t.Error("a new lab does not run what is built")
	}
	if err := os.Remove(filepath.Join(b.lab, b.gitea().file)); err != nil {
		t.Fatal(err)
	}
	b.sets.config.GitOps, b.cache = config.GitOpsFlux, filepath.Join(b.lab, "empty")
	if bin := run(); !Exists(bin) || !b.gitea().recorded(b) {
		t.Error("Gitea is not built for a configuration with Flux")
	}
	b.sets.config = config.Defaults()
	if keep, err := b.gitea().buildConfigured(t.Context(), b, true, quietly); err != nil || len(keep) != 1 {
		t.Errorf("kept: %v, %v", keep, err)
	}
}

// Flux reads Gitea where no other repository is named.
func TestConfigurationsThatNeedGitea(t *testing.T) {
	for _, c := range []struct {
		edit func(*config.Config)
		want bool
	}{
		{func(c *config.Config) { c.Gitea = "true" }, false},
		{func(c *config.Config) { c.GitOps = config.GitOpsFlux }, false},
		{func(c *config.Config) { c.Gitea, c.GitOps = "true", config.GitOpsFlux }, true},
		{func(c *config.Config) {
			c.Gitea, c.GitOps, c.GitURL = "true", config.GitOpsFlux, "https://host/fleet.git"
		}, false},
		{func(c *config.Config) {
			c.Addons, c.GitOps = config.Addons{{Name: config.AddonGitea}}, config.GitOpsFlux
		}, true},
	} {
		if cfg := with(c.edit); cfg.GitInGitea() != c.want {
			t.Errorf("Gitea %q, add-ons %v, GITOPS %q, GIT_URL %q: %v", cfg.Gitea, cfg.AddonNames(), cfg.GitOps,
				cfg.GitURL, !c.want)
		}
	}
}

// Where Gitea is needed and cannot be built, that is said before anything is started, with what to do.
func TestGiteaWithoutACompiler(t *testing.T) {
	b, home := giteaSource(t)
	bin := filepath.Join(home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "PATH="+bin, "CC=the-compiler -m64")
	b.sets.config.Gitea = "true"
	if err := b.beforeStart(t.Context()); err != nil {
		t.Errorf("the stand-in is enough: %v", err)
	}
	b.sets.config.GitOps = config.GitOpsFlux
	said := func(word string) {
		t.Helper()
		if err := b.beforeStart(t.Context()); err == nil || !strings.Contains(err.Error(), word) ||
			!strings.Contains(err.Error(), "GIT_URL") {
			t.Errorf("want an error about %s: %v", word, err)
		}
	}
	put := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	said("git")
	put("git")
	said("C compiler")
	put("the-compiler")
	if err := b.beforeStart(t.Context()); err != nil {
		t.Error(err)
	}
}
