package cli

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/operation/dependencies"
	"github.com/slipway-k8s/slipway/internal/session"
)

// depsOptions are the flags of deps.
type depsOptions struct {
	Live      bool   // of the cluster, in place of files
	InCluster bool   // of the cluster in whose Pod the command runs
	Namespace string // of objects whose file names none
	Expected  string // of audit: the list
	Write     bool   // of audit: write the list
}

// depsTree reads the files that the arguments name, or the cluster.
func depsTree(ctx context.Context, c *call, o depsOptions) (*dependencies.Tree, error) {
	files := c.Targets[2:] // behind the names of commands
	live := o.Live || o.InCluster
	switch {
	case live && len(files) > 0:
		return nil, usage.Errorf("--live reads the cluster, and %s names files: take one of the two", files[0])
	case live:
		cluster, err := session.OpenWorkload(ctx, c.caller(), c.Request, o.InCluster)
		if err != nil {
			return nil, err
		}
		return dependencies.Live(ctx, cluster)
	case len(files) == 0:
		return nil, usage.Errorf("deps %s needs FILE, a file or a folder with HelmReleases and Kustomizations, or --live for "+
			"those of the cluster", c.Targets[1])
	}
	return dependencies.Read(files, o.Namespace)
}

// runDepsAudit compares what Flux's objects depend on with the expected list, or writes that.
func runDepsAudit(ctx context.Context, c *call, o depsOptions) error {
	tree, err := depsTree(ctx, c, o)
	if err != nil {
		return err
	}
	var report dependencies.Report
	if o.Write {
		report, err = dependencies.WriteExpected(tree, o.Expected)
	} else {
		var expected *dependencies.Expected
		if expected, err = dependencies.ReadExpected(o.Expected); err == nil {
			report = dependencies.Audit(tree, expected, o.Expected)
		}
	}
	if err != nil {
		return err
	}
	return cmp.Or(c.print(report, report.Print), report.Drift())
}

// runDepsGraph draws what Flux's objects depend on.
func runDepsGraph(ctx context.Context, c *call, o depsOptions) error {
	tree, err := depsTree(ctx, c, o)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		graph, err := dependencies.GraphOf(tree)
		if err != nil {
			return err
		}
		return ui.PrintJSON(c.stdout, graph)
	}
	drawn, err := dependencies.Draw(tree, c.Output)
	if err == nil {
		_, err = io.WriteString(c.stdout, drawn)
	}
	return err
}

func newDepsCommand(c *call) *cobra.Command {
	return c.parent("deps", groupConfig, "what Flux's HelmReleases and Kustomizations depend on",
		newDepsAuditCommand(c), newDepsGraphCommand(c))
}

func newDepsAuditCommand(c *call) *cobra.Command {
	var own depsOptions
	cmd := c.command("audit [FILE…]", "",
		"compare the dependencies of HelmReleases and Kustomizations with those that are expected",
		func(ctx context.Context, c *call) error { return runDepsAudit(ctx, c, own) })
	addDepsFlags(cmd, &own)
	cmd.Flags().StringVar(&own.Expected, "expected", dependencies.DefaultFile, "the expected list is in `FILE`")
	cmd.Flags().BoolVar(&own.Write, "write", false, "write the expected list from what is, and keep the comments at its top")
	return cmd
}

func newDepsGraphCommand(c *call) *cobra.Command {
	var own depsOptions
	cmd := c.command("graph [FILE…]", "", "draw what HelmReleases and Kustomizations depend on",
		func(ctx context.Context, c *call) error { return runDepsGraph(ctx, c, own) })
	addDepsFlags(cmd, &own)
	cmd.Annotations = map[string]string{moreOutputs: "mermaid dot svg"}
	return cmd
}

func addDepsFlags(cmd *cobra.Command, o *depsOptions) {
	cmd.Flags().BoolVar(&o.Live, "live", false, "of the cluster, in place of files")
	cmd.Flags().BoolVar(&o.InCluster, "in-cluster", false,
		"of the cluster in whose Pod the command runs, by its ServiceAccount; no state folder is used")
	cmd.Flags().StringVar(&o.Namespace, "namespace", "default", "`NAMESPACE` of objects whose file names none")
}
