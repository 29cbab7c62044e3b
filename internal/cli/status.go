package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

func newStatusCommand(c *call) *cobra.Command {
	var watch bool
	cmd := c.command("status", groupLook,
		"show the steps, what is missing and why, servers, etcd, releases, certificates, cost",
		func(ctx context.Context, c *call) error {
			if watch {
				return watchStatus(ctx, c)
			}
			r, err := readStatus(ctx, c)
			if err != nil {
				return err
			}
			return c.print(r, r.Print)
		})
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again whenever it has changed, until Ctrl-C")
	return cmd
}

// readStatus compares the journal with Hetzner and the clusters, and changes nothing.
func readStatus(ctx context.Context, c *call) (status.Report, error) {
	k, err := c.load()
	if err != nil {
		return status.Report{}, err
	}
	return operations.Status(ctx, k)
}
