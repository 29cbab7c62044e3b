package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/platform"
)

// operate runs an operation that has no graph of its own, with the journal locked.
func operate(ctx context.Context, c *console, a arguments, do func(context.Context, *running) error) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if err := c.cluster(a, cfg).CheckEnvironment(ctx); err != nil {
		return err
	}
	return withRun(ctx, c, a, cfg, func(ctx context.Context, r *running) error {
		return r.Operate(ctx, func(ctx context.Context) error { return do(ctx, r) })
	})
}

// runDestroy takes a cluster away, after it has listed everything and asked.
func runDestroy(ctx context.Context, c *console, a arguments, o destroyOptions) error {
	opts := destroy.Options{Images: o.Images, Volumes: o.Volumes, KeepAddress: o.KeepAddress}
	if a.Options.DryRun {
		return look(ctx, c, a, func(cfg config.Config, tools platform.Tools) error {
			destroyer := destroy.New(cfg, tools)
			plan, err := wait.Promptly(ctx,
				func(ctx context.Context) (destroy.Deletion, error) { return destroyer.Plan(ctx, opts) })
			if err != nil {
				return err
			}
			return printDestroyPlan(c, plan, a.Options.Output)
		})
	}
	if !a.Options.Yes && !canPrompt(c) {
		return usage.Errorf("destroy asks for the cluster's name, and the standard input is no terminal: --yes answers " +
			"beforehand, " +
			"--dry-run only lists")
	}
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		return operations.Destroy(ctx, r.Session, operations.DestroyOptions{Options: opts,
			Show: func(d destroy.Deletion) error { return printDestroyPlan(c, d, a.Options.Output) }}, r.questions())
	})
}

// canPrompt tells whether the operator can be asked. A file that is no terminal certainly gives no answer.
func canPrompt(c *console) bool {
	_, isFile := c.stdin.(*os.File)
	return c.stdin != nil && (!isFile || isTerminal(c.stdin))
}

// isTerminal tells whether a stream is certainly a terminal.
func isTerminal(stream any) bool {
	f, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}

// runLeftovers lists what any cluster has, or left, in the project.
func runLeftovers(ctx context.Context, c *console, a arguments) error {
	return look(ctx, c, a, func(_ config.Config, tools platform.Tools) error {
		ask := func(ctx context.Context) ([]hetzner.Resource, error) { return destroy.Leftovers(ctx, tools) }
		resources, err := wait.Promptly(ctx, ask)
		if err != nil {
			return err
		}
		return printLeftovers(c, resources, a.Options.Output)
	})
}

// look reads from Hetzner and the clusters and changes nothing: it takes no lock, leaves no files and starts no lab.
func look(ctx context.Context, c *console, a arguments, do func(config.Config, platform.Tools) error) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	at, err := c.cluster(a, cfg).InspectOnline(ctx)
	if err != nil {
		return err
	}
	return do(at.Cfg.Config, at.Tools)
}

// runReplaceMachine replaces a control plane machine.
func runReplaceMachine(ctx context.Context, c *console, a arguments) error {
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		_, err := operations.ReplaceMachine(ctx, r.Session, a.Targets[1], r.questions())
		return err
	})
}

// destroyOptions are the flags of destroy.
type destroyOptions struct {
	Images  bool // the snapshots too
	Volumes bool // the volumes too, with their data

	KeepAddress bool // not the Primary IP of the control plane endpoint
}

func newDestroyCommand(in *invocation) *cobra.Command {
	var own destroyOptions
	cmd := in.command("destroy", groupCluster, "delete the cluster, after a list with prices and a question",
		func(ctx context.Context, c *console, a arguments) error {
			return runDestroy(ctx, c, a, own)
		})
	o := &in.arguments.Options
	addDryRunFlag(cmd, o, "only say what would go and what it costs")
	cmd.Flags().BoolVar(&own.Images, "images", false, "delete the snapshots that were made for the cluster, too")
	cmd.Flags().BoolVar(&own.KeepAddress, "keep-address", false,
		"keep the control plane's address (a Primary IP) for the next cluster of this name")
	cmd.Flags().BoolVar(&own.Volumes, "volumes", false,
		"delete the volumes that were made in the cluster, too, with their data")
	return cmd
}

func newLeftoversCommand(in *invocation) *cobra.Command {
	return in.command("leftovers", groupCluster, "list what any cluster has in the project, and what it costs a month",
		runLeftovers)
}

func newReplaceMachineCommand(in *invocation) *cobra.Command {
	cmd := in.command("replace-machine NAME", groupCluster,
		"replace a control plane machine, if etcd keeps its quorum meanwhile", runReplaceMachine)
	o := &in.arguments.Options
	addSkipDoctorFlag(cmd, o)
	return cmd
}
