package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runDestroy takes a cluster away, after it has listed everything and asked.
func runDestroy(ctx context.Context, c *call, k session.Cluster, o destroy.Options) error {
	if c.DryRun {
		at, err := k.InspectOnline(ctx)
		if err != nil {
			return err
		}
		plan, err := wait.Promptly(ctx, func(ctx context.Context) (destroy.Deletion, error) {
			return destroy.New(at.Cfg.Config, at.Tools).Plan(ctx, o)
		})
		if err != nil {
			return err
		}
		return printDestroyPlan(c, plan)
	}
	if err := c.refuseUnasked("destroy asks for the cluster's name", "--dry-run only lists"); err != nil {
		return err
	}
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		return operations.Destroy(ctx, s, operations.DestroyOptions{Options: o,
			Show: func(d destroy.Deletion) error { return printDestroyPlan(c, d) }}, c.questions(s))
	})
}

// runLeftovers lists what any cluster has, or left, in the project.
func runLeftovers(ctx context.Context, c *call, k session.Cluster) error {
	at, err := k.InspectOnline(ctx)
	if err != nil {
		return err
	}
	inventory, err := wait.Promptly(ctx, func(ctx context.Context) (hetzner.Inventory, error) {
		return hetzner.TakeInventory(ctx, at.Tools.Hetzner)
	})
	if err != nil {
		return err
	}
	return printLeftovers(c, inventory.Resources)
}

// runReplaceMachine replaces a control plane machine.
func runReplaceMachine(ctx context.Context, c *call, k session.Cluster) error {
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		_, err := operations.ReplaceMachine(ctx, s, c.word(1), c.questions(s))
		return err
	})
}

func newDestroyCommand(c *call) *cobra.Command {
	var own destroy.Options
	cmd := c.command("destroy", groupCluster, "delete the cluster, after a list with prices and a question",
		withCluster(func(ctx context.Context, c *call, k session.Cluster) error { return runDestroy(ctx, c, k, own) }))
	addDryRunFlag(cmd, &c.arguments, "only say what would go and what it costs")
	cmd.Flags().BoolVar(&own.Images, "images", false, "delete the snapshots that were made for the cluster, too")
	cmd.Flags().BoolVar(&own.KeepAddress, "keep-address", false,
		"keep the control plane's address (a Primary IP) for the next cluster of this name")
	cmd.Flags().BoolVar(&own.Volumes, "volumes", false,
		"delete the volumes that were made in the cluster, too, with their data")
	return cmd
}

func newLeftoversCommand(c *call) *cobra.Command {
	return c.command("leftovers", groupCluster, "list what any cluster has in the project, and what it costs a month",
		withCluster(runLeftovers))
}

func newReplaceMachineCommand(c *call) *cobra.Command {
	cmd := c.command("replace-machine NAME", groupCluster,
		"replace a control plane machine, if etcd keeps its quorum meanwhile", withCluster(runReplaceMachine))
	addSkipDoctorFlag(cmd, &c.arguments)
	return cmd
}
