package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runGitopsInit writes the tree of a Git repository from what runs in the cluster. It changes nothing in the cluster.
func runGitopsInit(ctx context.Context, c *console, a arguments, o operations.GitopsOptions) error {
	k, err := loadCluster(c, a)
	if err != nil {
		return err
	}
	o.To, o.DryRun = a.Targets[2], a.Options.DryRun
	tree, err := operations.InitGitops(ctx, k, o)
	if err != nil {
		return err
	}
	if a.Options.Output == "json" {
		if !tree.DryRun {
			tree.WithoutContent()
		}
		return ui.PrintJSON(c.stdout, tree)
	}
	return tree.Print(c.stdout, c.width())
}

func newGitopsCommand(in *invocation) *cobra.Command {
	return in.parent("gitops", groupConfig, "a Git repository from which Flux manages the releases: init",
		newGitopsInitCommand(in))
}

func newGitopsInitCommand(in *invocation) *cobra.Command {
	var own operations.GitopsOptions
	cmd := in.command("init DIR", "",
		"write HelmReleases of what Slipway installed into a folder or a repository, for Flux to take them over",
		func(ctx context.Context, c *console, a arguments) error { return runGitopsInit(ctx, c, a, own) })
	addDryRunFlag(cmd, &in.arguments.Options, "print the files, and write none")
	cmd.Flags().BoolVar(&own.Force, "force", false, "replace files that are there and differ")
	return cmd
}
