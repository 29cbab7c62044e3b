package operations

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/gitclone"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// GitopsOptions are the choices of InitGitops.
type GitopsOptions struct {
	To     string // a folder, or with :// in it a repository, which is cloned
	DryRun bool   // write nothing
	Force  bool   // replace files that differ
}

// InitGitops writes the tree of a Git repository from what runs in the cluster. It changes nothing in the cluster.
func InitGitops(ctx context.Context, k session.Cluster, o GitopsOptions) (tree flux.Tree, err error) {
	state, err := k.StateWithCluster(ctx)
	if err != nil {
		return tree, err
	}
	if !filepath.IsLocal(filepath.FromSlash(k.Cfg.GitFolder())) {
		return tree, usage.Errorf("GIT_PATH %s is outside of the repository: write a folder of it like clusters/%s",
			k.Cfg.GitPath, k.Cfg.ClusterName)
	}
	to, err := openGitopsTarget(ctx, k, o.To)
	if err != nil {
		return tree, err
	}
	defer func() { _ = to.close() }()
	folder, err := flux.OpenFolder(to.dir, string(state))
	if err != nil {
		return tree, err
	}
	defer func() { _ = folder.Close() }()
	at, cluster, err := k.InspectWorkload(ctx, state)
	if err != nil {
		return tree, err
	}
	cfg, hide := at.Cfg, k.Caller.Hide
	hide.Learn(cfg.Passwords()...)
	releases, left, err := flux.ReadReleases(ctx, cluster, cfg.Config, hide)
	if err != nil {
		return tree, err
	}
	tree, err = flux.MakeTree(cfg.Config, releases, left, folder)
	if err != nil {
		return tree, err
	}
	tree.DryRun = o.DryRun
	if to.clone != nil {
		tree.Dir, tree.Next = to.url, fluxSyncCommand(k.Caller, cfg.Config, tree, to.url)
	} else {
		tree.Next = nextCommands(k.Caller, cfg.Config, tree, folder.Git)
	}
	if !tree.DryRun {
		if err := tree.Conflict(); err != nil && !o.Force {
			return tree, err
		}
		if err := tree.Write(folder); err != nil {
			return tree, err
		}
		if to.clone != nil {
			if tree.Commit, err = to.clone.Push(ctx, tree.Path, commitMessage(cfg.Config)); err != nil {
				return tree, err
			}
		}
	}
	return tree, nil
}

// gitopsTarget is where the tree goes: a folder of this machine, or a clone of a repository.
type gitopsTarget struct {
	dir   string
	clone *gitclone.Clone // nil: a folder
	url   string
}

// openGitopsTarget opens the target that an argument names: with :// in it a repository, which is cloned.
func openGitopsTarget(ctx context.Context, k session.Cluster, word string) (t gitopsTarget, err error) {
	if !strings.Contains(word, "://") {
		return gitopsTarget{dir: settings.InFolder(k.Caller.WorkDir, word)}, nil
	}
	if _, err := config.ParseGitURL(word); err != nil {
		return t, &usage.Error{Err: err}
	}
	o := gitclone.Options{URL: word, Branch: k.Cfg.GitBranch, Author: "Slipway", Email: "slipway@" + k.Cfg.ClusterName}
	if word == k.Cfg.GitURL || k.Cfg.GitURL == "" { // no other host gets the configured credentials
		if o.Access, err = pushAccess(ctx, k.Caller, k.Cfg, word); err != nil {
			return t, err
		}
	}
	clone, err := gitclone.Open(ctx, o)
	if err != nil {
		return t, err
	}
	return gitopsTarget{dir: clone.Dir, clone: clone, url: word}, nil
}

// pushAccess is what git reads and writes a repository with, besides what it has configured itself.
func pushAccess(ctx context.Context, c *session.Caller, cfg settings.Configuration,
	address string) (gitclone.Access, error) {
	cfg.GitOps, cfg.GitURL = config.GitOpsFlux, address
	if cfg.GitOverSSH() {
		var a gitclone.Access
		if home := c.Environment["HOME"]; cfg.GitKeyFile != "" {
			a.KeyFile = settings.AtHome(cfg.GitKeyFile, home)
			a.KnownHosts = settings.AtHome(cfg.GitKnownHostsFile, home)
		}
		return a, nil
	}
	access, err := cfg.GitAccess(ctx, c.Environment)
	c.Hide.Learn(access.Token.Reveal())
	return gitclone.Access{User: access.User, Token: access.Token.Reveal()}, err
}

// close removes a clone.
func (t gitopsTarget) close() error {
	if t.clone == nil {
		return nil
	}
	return t.clone.Close()
}

// nextCommands bring the tree into the repository and let Flux read it there.
func nextCommands(c *session.Caller, cfg config.Config, t flux.Tree, workingCopy bool) []string {
	git := func(words ...string) string { return text.ShellLine(append([]string{"git", "-C", t.Dir}, words...)...) }
	var next []string
	if cfg.GitOps == config.GitOpsFlux && cfg.FromRegistry() {
		return append(next, text.ShellLine("flux", "push", "artifact", cfg.GitURL+":"+cfg.OCITag, "--path", t.Dir, "--source",
			"slipway", "--revision", cfg.ClusterName), c.Command("flux-sync"))
	}
	push := git("push")
	if !workingCopy {
		address := cmp.Or(cfg.GitURL, "GIT_URL")
		if cfg.GitInGitea() {
			address = fmt.Sprintf("http://127.0.0.1:%d/USER/%s.git", config.GiteaPort, cfg.GiteaRepository)
			next = append(next, fmt.Sprintf("kubectl port-forward --namespace %s service/%s %d  # stays open; USER and "+
				"password: Secret %[1]s/%s", config.GiteaNamespace, config.GiteaService, config.GiteaPort, config.GiteaAdminSecret))
		}
		next = append(next, git("init", "--initial-branch", cmp.Or(cfg.GitBranch, "main")),
			git("remote", "add", "origin", address))
		push = git("push", "--set-upstream", "origin", "HEAD")
	}
	next = append(next, git("add", t.Path), git("commit", "--message", commitMessage(cfg)), push)
	return append(next, fluxSyncCommand(c, cfg, t, "https://…")...)
}

func commitMessage(cfg config.Config) string {
	return "Manage the releases of cluster " + cfg.ClusterName
}

// fluxSyncCommand has Flux read the repository at an address.
func fluxSyncCommand(c *session.Caller, cfg config.Config, t flux.Tree, address string) []string {
	if cfg.GitOps == config.GitOpsFlux && (cfg.GitURL == address || cfg.GitURL != "" || cfg.GitInGitea()) {
		return []string{c.Command("flux-sync")}
	}
	return []string{c.Command("flux-sync") + " GITOPS=flux GIT_URL=" + address + " GIT_PATH=" + text.Quote(t.Path)}
}
