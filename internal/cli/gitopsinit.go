package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/gitclone"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// gitopsInitOptions are the flags of gitops init.
type gitopsInitOptions struct {
	Force bool // replace files that differ
}

// target is where the tree goes: a folder of this machine, or a clone of a repository.
type target struct {
	dir   string
	clone *gitclone.Clone // nil: a folder
	url   string
}

// gitopsTarget is the target that an argument names: with :// in it a repository, which is cloned.
func gitopsTarget(ctx context.Context, c *console, cfg settings.Configuration, word string) (t target, err error) {
	if !strings.Contains(word, "://") {
		return target{dir: settings.InFolder(c.workDir, word)}, nil
	}
	if _, err := config.ParseGitURL(word); err != nil {
		return t, &usage.Error{Err: err}
	}
	o := gitclone.Options{URL: word, Branch: cfg.GitBranch, Author: "Slipway", Email: "slipway@" + cfg.ClusterName}
	if word == cfg.GitURL || cfg.GitURL == "" { // no other host gets the configured credentials
		if o.Access, err = pushAccess(ctx, c, cfg, word); err != nil {
			return t, err
		}
	}
	clone, err := gitclone.Open(ctx, o)
	if err != nil {
		return t, err
	}
	return target{dir: clone.Dir, clone: clone, url: word}, nil
}

// pushAccess is what git reads and writes a repository with, besides what it has configured itself.
func pushAccess(ctx context.Context, c *console, cfg settings.Configuration, address string) (gitclone.Access, error) {
	cfg.GitOps, cfg.GitURL = config.GitOpsFlux, address
	if cfg.GitOverSSH() {
		var a gitclone.Access
		if home := c.environment["HOME"]; cfg.GitKeyFile != "" {
			a.KeyFile = settings.AtHome(cfg.GitKeyFile, home)
			a.KnownHosts = settings.AtHome(cfg.GitKnownHostsFile, home)
		}
		return a, nil
	}
	access, err := cfg.GitAccess(ctx, c.environment)
	c.hide.Learn(access.Token.Reveal())
	return gitclone.Access{User: access.User, Token: access.Token.Reveal()}, err
}

// close removes a clone.
func (t target) close() error {
	if t.clone == nil {
		return nil
	}
	return t.clone.Close()
}

// runGitopsInit writes the tree of a Git repository from what runs in the cluster. It changes nothing in the cluster.
func runGitopsInit(ctx context.Context, c *console, a arguments, o gitopsInitOptions) error {
	cfg, state, err := stateWithCluster(ctx, c, a)
	if err != nil {
		return err
	}
	if !filepath.IsLocal(filepath.FromSlash(cfg.GitFolder())) {
		return usage.Errorf("GIT_PATH %s is outside of the repository: write a folder of it like clusters/%s", cfg.GitPath,
			cfg.ClusterName)
	}
	to, err := gitopsTarget(ctx, c, cfg, a.Targets[2])
	if err != nil {
		return err
	}
	defer func() { _ = to.close() }()
	folder, err := flux.OpenFolder(to.dir, string(state))
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	cfg, _, cluster, err := clusterOfState(ctx, c, a)
	if err != nil {
		return err
	}
	c.hide.Learn(cfg.Passwords()...)
	releases, left, err := flux.ReadReleases(ctx, cluster, cfg.Config, c.hide)
	if err != nil {
		return err
	}
	tree, err := flux.MakeTree(cfg.Config, releases, left, folder)
	if err != nil {
		return err
	}
	tree.DryRun = a.Options.DryRun
	if to.clone != nil {
		tree.Dir, tree.Next = to.url, fluxSyncCommand(c, cfg.Config, tree, to.url)
	} else {
		tree.Next = nextCommands(c, cfg.Config, tree, folder.Git)
	}
	if !tree.DryRun {
		if err := tree.Conflict(); err != nil && !o.Force {
			return err
		}
		if err := tree.Write(folder); err != nil {
			return err
		}
		if to.clone != nil {
			if tree.Commit, err = to.clone.Push(ctx, tree.Path, commitMessage(cfg.Config)); err != nil {
				return err
			}
		}
	}
	if a.Options.Output == "json" {
		if !tree.DryRun {
			tree.WithoutContent()
		}
		return ui.PrintJSON(c.stdout, tree)
	}
	return tree.Print(c.stdout, c.width())
}

// nextCommands bring the tree into the repository and let Flux read it there.
func nextCommands(c *console, cfg config.Config, t flux.Tree, workingCopy bool) []string {
	git := func(words ...string) string { return text.ShellLine(append([]string{"git", "-C", t.Dir}, words...)...) }
	var next []string
	if cfg.GitOps == config.GitOpsFlux && cfg.FromRegistry() {
		return append(next, text.ShellLine("flux", "push", "artifact", cfg.GitURL+":"+cfg.OCITag, "--path", t.Dir, "--source",
			"slipway", "--revision", cfg.ClusterName), commandLine(c, "flux-sync"))
	}
	push := git("push")
	if !workingCopy {
		address := cmp.Or(cfg.GitURL, "GIT_URL")
		if cfg.GitInGitea() {
			address = fmt.Sprintf("http://127.0.0.1:%d/USER/%s.git", config.GiteaPort, cfg.GiteaRepository)
			next = append(next, fmt.Sprintf("kubectl port-forward --namespace %s service/%s %d  # stays open; USER and password: "+
				"Secret %[1]s/%s", config.GiteaNamespace, config.GiteaService, config.GiteaPort, config.GiteaAdminSecret))
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
func fluxSyncCommand(c *console, cfg config.Config, t flux.Tree, address string) []string {
	if cfg.GitOps == config.GitOpsFlux && (cfg.GitURL == address || cfg.GitURL != "" || cfg.GitInGitea()) {
		return []string{commandLine(c, "flux-sync")}
	}
	return []string{commandLine(c, "flux-sync") + " GITOPS=flux GIT_URL=" + address + " GIT_PATH=" + text.Quote(t.Path)}
}

func newGitopsCommand(in *invocation) *cobra.Command {
	return in.parent("gitops", groupConfig, "a Git repository from which Flux manages the releases: init",
		newGitopsInitCommand(in))
}

func newGitopsInitCommand(in *invocation) *cobra.Command {
	var own gitopsInitOptions
	cmd := in.command("init DIR", "",
		"write HelmReleases of what Slipway installed into a folder or a repository, for Flux to take them over",
		func(ctx context.Context, c *console, a arguments) error { return runGitopsInit(ctx, c, a, own) })
	addDryRunFlag(cmd, &in.arguments.Options, "print the files, and write none")
	cmd.Flags().BoolVar(&own.Force, "force", false, "replace files that are there and differ")
	return cmd
}
