package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/gitops"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/shell"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// gitopsInitOptions are the flags of gitops init.
type gitopsInitOptions struct {
	Force bool // replace files that differ
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
	folder, err := gitops.Open(settings.InFolder(c.workDir, a.Targets[2]), string(state))
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	cfg, _, cluster, err := clusterOfState(ctx, c, a)
	if err != nil {
		return err
	}
	c.hide.Learn(cfg.Passwords()...)
	releases, left, err := gitops.Read(ctx, cluster, cfg.Config, c.hide)
	if err != nil {
		return err
	}
	tree, err := gitops.Make(cfg.Config, releases, left, folder)
	if err != nil {
		return err
	}
	tree.DryRun, tree.Next = a.Options.DryRun, nextCommands(c, cfg.Config, tree, folder.Git)
	if !tree.DryRun {
		if err := tree.Conflict(); err != nil && !o.Force {
			return err
		}
		if err := tree.Write(folder); err != nil {
			return err
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
func nextCommands(c *console, cfg config.Config, t gitops.Tree, workingCopy bool) []string {
	git := func(words ...string) string { return shell.Line(append([]string{"git", "-C", t.Dir}, words...)...) }
	var next []string
	if cfg.GitOps == config.GitOpsFlux && cfg.FromRegistry() {
		return append(next, shell.Line("flux", "push", "artifact", cfg.GitURL+":"+cfg.OCITag, "--path", t.Dir, "--source",
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
	next = append(next, git("add", t.Path),
		git("commit", "--message", "Manage the releases of cluster "+cfg.ClusterName), push)
	if cfg.GitOps == config.GitOpsFlux {
		return append(next, commandLine(c, "flux-sync"))
	}
	return append(next, commandLine(c, "flux-sync")+" GITOPS=flux GIT_URL=https://… GIT_PATH="+shell.Quote(t.Path))
}

func newGitopsCommand(in *invocation) *cobra.Command {
	return in.parent("gitops", groupConfig, "a Git repository from which Flux manages the releases: init",
		newGitopsInitCommand(in))
}

func newGitopsInitCommand(in *invocation) *cobra.Command {
	var own gitopsInitOptions
	cmd := in.command("init DIR", "",
		"write HelmReleases of what Slipway installed into a folder, for Flux to take them over",
		func(ctx context.Context, c *console, a arguments) error { return runGitopsInit(ctx, c, a, own) })
	addDryRunFlag(cmd, &in.arguments.Options, "print the files, and write none")
	cmd.Flags().BoolVar(&own.Force, "force", false, "replace files that are there and differ")
	return cmd
}
