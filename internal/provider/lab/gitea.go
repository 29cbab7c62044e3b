package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
)

const (
	// giteaPath is Gitea's module.
	giteaPath = "code.gitea.io/gitea"
	// giteaTags are the build tags with which Gitea has SQLite.
	giteaTags = "sqlite,sqlite_unlock_notify"
)

// giteaParts are the folders of Gitea's module that its program reads. Its files for browsers are not in the module.
var giteaParts = []string{"templates", "options", "public"}

// gitea is Gitea's program, with the files that it reads beside it. A lab that may not run it has the stand-in.
func (b *builder) gitea() extra {
	return extra{name: "Gitea", module: filepath.Join(b.source, "gitea", "1.26"), file: "gitea",
		recipe:     recipe{args: []string{"-tags", giteaTags}, env: []string{"CGO_ENABLED=1"}, finish: b.giteaFiles},
		configured: b.sets.config.HasGitea(), needed: b.sets.config.GitInGitea(), offered: true, setting: "GITEA=true",
		possible: b.giteaPossible}
}

// giteaFiles copies the folders that Gitea reads out of its module into the folder of its program: Go's module cache
// may be emptied.
func (b *builder) giteaFiles(ctx context.Context, dir string) error {
	from, err := b.goOutput(ctx, b.gitea().module, "list", "-m", "-f", "{{.Dir}}", giteaPath)
	if err != nil {
		return fmt.Errorf("find Gitea's files: %w", err)
	}
	for _, part := range giteaParts {
		to := filepath.Join(dir, "static", part)
		if err := os.RemoveAll(to); err != nil { // of a build that was ended
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(filepath.Join(strings.TrimSpace(from), part))); err != nil {
			return fmt.Errorf("copy Gitea's files: %w", err)
		}
	}
	return nil
}

// giteaPossible is nil if Gitea's program is built or can be: that takes a C compiler, and git where it runs.
func (b *builder) giteaPossible(ctx context.Context) error {
	const instead = "; or give a GIT_URL, with which the lab's stand-in for Gitea is enough"
	if !b.has("git") {
		return errors.New("Gitea runs git, and this machine has none: install git" + instead)
	}
	bin, err := b.gitea().bin(ctx, b)
	if err != nil || Exists(bin) {
		return err
	}
	if bin == "" {
		return errors.New("this lab's source cannot build Gitea: it has no folder gitea/1.26" + instead)
	}
	cc, err := b.goOutput(ctx, b.gitea().module, "env", "CC")
	if err != nil {
		return fmt.Errorf("ask go for the C compiler: %w", err)
	}
	words := strings.Fields(cc)
	if len(words) == 0 || !b.has(words[0]) {
		return fmt.Errorf("the lab builds Gitea from source, which takes a C compiler for SQLite, and %q is not on this "+
			"machine: install one (gcc with libc6-dev, or clang), or name one with CC%s", strings.TrimSpace(cc), instead)
	}
	return nil
}

// has says whether a program is in the builder's PATH; one with a path: whether it exists.
func (b *builder) has(program string) bool {
	if strings.ContainsRune(program, filepath.Separator) {
		return Exists(program)
	}
	dirs := ""
	for _, e := range b.env { // of two the last counts
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = value
		}
	}
	return slices.ContainsFunc(filepath.SplitList(dirs), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, program))
		return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
	})
}

// beforeStart is nil if what the lab is to run can be built, as far as that can be said before.
func (b *builder) beforeStart(ctx context.Context) error {
	if b.sets.config.GitInGitea() || b.gitea().recorded(b) {
		return b.giteaPossible(ctx)
	}
	return nil
}

// AddGitea makes sure that the lab, which is up, runs Gitea itself, and that Flux can read it. It returns the lab's
// info afterwards.
func (l *Lab) AddGitea(ctx context.Context, say flow.Say) (info Info, err error) {
	if info, err = l.Answering(ctx); err != nil {
		return info, err
	}
	if info.Gitea.Unreachable != "" {
		return info, fmt.Errorf("Flux cannot read the lab's Gitea on this machine: %s; give a GIT_URL",
			info.Gitea.Unreachable)
	}
	if info.Gitea.Fidelity == giteaReal {
		return info, nil
	}
	b, err := l.builder()
	if err != nil {
		return info, err
	}
	if _, err := b.gitea().build(ctx, b, say); err != nil {
		return info, err
	}
	if err := b.gitea().record(b); err != nil {
		return info, err
	}
	if err := l.Client.Send(ctx, http.MethodPut, "/v1/gitea", nil, &info); err != nil {
		return info, err
	}
	say("the lab runs Gitea %s; a Pod of before runs the stand-in until it is deleted", info.Gitea.Version)
	return info, nil
}

// giteaReal is how the lab says that it runs Gitea itself.
const giteaReal = "real"
