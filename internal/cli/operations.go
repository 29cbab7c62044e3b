package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/replace"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
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
		unlock, err := r.Journal().Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = unlock() }()
		if err := r.Connect(ctx); err != nil {
			return err
		}
		return do(ctx, r)
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
		destroyer := destroy.New(r.Cfg.Config, r.Tools)
		plan, err := destroyer.Plan(ctx, opts)
		if err != nil {
			return err
		}
		if err := printDestroyPlan(c, plan, a.Options.Output); err != nil {
			return err
		}
		if !a.Options.Yes {
			if err := offerBackup(ctx, r, "what destroy deletes is gone for good"); err != nil {
				return err
			}
			if err := confirm(ctx, c, fmt.Sprintf("Type the cluster's name (%s) to delete all this for good: ", plan.Cluster),
				plan.Cluster); err != nil {
				return err
			}
		}
		if err := destroyer.Destroy(ctx, plan, r.Hub.Task); err != nil {
			return fmt.Errorf("%w\nrun the same command again to resume; log: %s", err, r.Files.Log.Name())
		}
		if err := errors.Join(upgrade.End(r.Tools.Files), scale.Forget(r.Tools.Files)); err != nil {
			return fmt.Errorf("remove the records of what was begun on the cluster: %w", err)
		}
		record, err := retire(r)
		if err != nil {
			return err
		}
		if err := ownership.Remove(r.Tools.Files); err != nil {
			return fmt.Errorf("make the state folder free for another cluster: %w", err)
		}
		r.Hub.Note("cluster %s is gone%s", plan.Cluster, record)
		return nil
	})
}

// retire moves the journal of a destroyed cluster away, and records that.
func retire(r *running) (record string, err error) {
	err = r.Effects.Do(context.Background(), effect.File, statedir.VerbRetire, statedir.JournalFile, func() error {
		record, err = r.Folder.Retire(r.Began)
		return err
	})
	return record, err
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
	state, err := c.cluster(a, cfg).State(ctx)
	if err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	k := c.cluster(a, cfg)
	if a.Options.Lab {
		at, err := k.Look(ctx, state)
		if err != nil {
			return err
		}
		if at.Offline != "" {
			return errors.New(at.Offline)
		}
		return do(at.Cfg.Config, at.Tools)
	}
	if err := k.CheckEnvironment(ctx); err != nil {
		return err
	}
	token, err := cfg.Token(ctx, c.environment)
	if err != nil {
		return err
	}
	c.hide.Learn(token.Reveal())
	tools := k.CommonTools(state, io.Discard)
	tools.Hetzner = session.HetznerClient(c.environment[settings.EndpointVariable], token, nil, c.caller().LookGovernor())
	return do(cfg.Config, tools)
}

// runReplaceMachine replaces a control plane machine.
func runReplaceMachine(ctx context.Context, c *console, a arguments) error {
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		if err := errors.Join(r.RefuseDuringRecovery(), r.CheckProject(ctx)); err != nil {
			return err
		}
		if err := r.ExamineFor(ctx, doctor.ForServer); err != nil {
			return err
		}
		replacer := replace.NewReplacer(r.Cfg.Config, r.Tools)
		flaw, err := replacer.Flaw(ctx, func(string, ...any) {})
		if err != nil {
			return err
		}
		if flaw != "" {
			r.Hub.Note("it may never end: %s", flaw)
		}
		if err := agreeToFlaw(ctx, r, "replace-machine", flaw); err != nil {
			return err
		}
		var done replace.Replacement
		err = r.Hub.Task("replace-machine", "a control plane machine in the place of "+a.Targets[1],
			func(say flow.Say) (err error) {
				done, err = replacer.Replace(ctx, say, a.Targets[1])
				return err
			})
		if unknown, ok := errors.AsType[*replace.UnknownMachineError](err); ok {
			return &usage.Error{Err: unknown}
		}
		if err == nil {
			r.Hub.Note("%s", done)
		}
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
		"a new control plane machine in the place of one, if etcd can do without it meanwhile", runReplaceMachine)
	o := &in.arguments.Options
	addSkipDoctorFlag(cmd, o)
	return cmd
}
