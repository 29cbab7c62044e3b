package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runGitopsInit writes the tree of a Git repository from what runs in the cluster. It changes nothing in the cluster.
func runGitopsInit(ctx context.Context, c *call, k session.Cluster, o operations.GitopsOptions) error {
	o.To, o.DryRun = c.Targets[2], c.DryRun
	tree, err := operations.InitGitops(ctx, k, o)
	if err != nil {
		return err
	}
	if c.Output == "json" && !tree.DryRun {
		tree.WithoutContent()
	}
	return c.print(tree, tree.Print)
}

func newGitopsCommand(c *call) *cobra.Command {
	return c.parent("gitops", groupConfig, "a Git repository from which Flux manages the releases: init",
		newGitopsInitCommand(c))
}

func newGitopsInitCommand(c *call) *cobra.Command {
	var own operations.GitopsOptions
	cmd := c.command("init DIR", "",
		"write HelmReleases of what Slipway installed into a folder or a repository, for Flux to take them over",
		withCluster(func(ctx context.Context, c *call, k session.Cluster) error { return runGitopsInit(ctx, c, k, own) }))
	addDryRunFlag(cmd, &c.arguments, "print the files, and write none")
	cmd.Flags().BoolVar(&own.Force, "force", false, "replace files that are there and differ")
	return cmd
}
