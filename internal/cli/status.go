package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runStatus compares the journal with Hetzner and the clusters, and changes nothing.
func runStatus(ctx context.Context, c *console, a arguments, o statusOptions) error {
	if o.Watch {
		return watchStatus(ctx, c, a)
	}
	k, err := loadCluster(c, a)
	if err != nil {
		return err
	}
	r, err := operations.Status(ctx, k)
	if err != nil {
		return err
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, r)
	}
	return r.Print(c.stdout, c.width())
}

// statusOptions are the flags of status.
type statusOptions struct {
	Watch bool // again whenever it has changed
}

func newStatusCommand(in *invocation) *cobra.Command {
	var own statusOptions
	cmd := in.command("status", groupLook,
		"show the steps, what is missing and why, servers, etcd, releases, certificates, cost",
		func(ctx context.Context, c *console, a arguments) error {
			return runStatus(ctx, c, a, own)
		})
	cmd.Flags().BoolVar(&own.Watch, "watch", false, "show it again whenever it has changed, until Ctrl-C")
	return cmd
}
