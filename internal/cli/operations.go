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
	if err := checkEnvironment(ctx, c, a, cfg); err != nil {
		return err
	}
	return withRun(ctx, c, a, cfg, func(ctx context.Context, r *running) error {
		unlock, err := r.journal().Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = unlock() }()
		if err := connect(ctx, r); err != nil {
			return err
		}
		return do(ctx, r)
	})
}

// checkEnvironment refuses to take the state of a rehearsal for that of a real cluster, and the other way round.
func checkEnvironment(ctx context.Context, c *console, a arguments, cfg settings.Configuration) error {
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	return refuseOtherEnvironment(state, a.Options.Lab)
}

func refuseOtherEnvironment(state statedir.Dir, inLab bool) error {
	is, err := state.Environment()
	switch {
	case err != nil:
		return err
	case is == statedir.EnvironmentLab && !inLab:
		return usage.Errorf("%s holds the state of a rehearsal: add --lab, or name another folder (--state-dir) for the "+
			"real cluster", state)
	case is == statedir.EnvironmentHetzner && inLab:
		return usage.Errorf("%s holds the state of a real cluster: run without --lab, or name another folder (--state-dir)",
			state)
	}
	return nil
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
		destroyer := destroy.New(r.cfg.Config, r.tools)
		plan, err := destroyer.Plan(ctx, opts)
		if err != nil {
			return err
		}
		if err := printDestroyPlan(c, plan, a.Options.Output); err != nil {
			return err
		}
		if !a.Options.Yes {
			if err := offerBackup(ctx, r, a, "what destroy deletes is gone for good"); err != nil {
				return err
			}
			if err := confirm(ctx, c, fmt.Sprintf("Type the cluster's name (%s) to delete all this for good: ", plan.Cluster),
				plan.Cluster); err != nil {
				return err
			}
		}
		if err := destroyer.Destroy(ctx, plan, r.hub.Task); err != nil {
			return fmt.Errorf("%w\nrun the same command again to resume; log: %s", err, r.files.Log.Name())
		}
		if err := errors.Join(upgrade.End(r.tools.Files), scale.Forget(r.tools.Files)); err != nil {
			return fmt.Errorf("remove the records of what was begun on the cluster: %w", err)
		}
		record, err := retire(r)
		if err != nil {
			return err
		}
		if err := ownership.Remove(r.tools.Files); err != nil {
			return fmt.Errorf("make the state folder free for another cluster: %w", err)
		}
		r.hub.Note("cluster %s is gone%s", plan.Cluster, record)
		return nil
	})
}

// retire moves the journal of a destroyed cluster away, and records that.
func retire(r *running) (record string, err error) {
	err = r.effects.Do(context.Background(), effect.File, statedir.VerbRetire, statedir.JournalFile, func() error {
		record, err = r.state.Retire(r.began)
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
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	tools := commonTools(state, cfg, c.environment, io.Discard)
	tools.CommandLine = func(target ...string) string { return commandLine(c, target...) }
	if a.Options.Lab {
		var offline string
		if cfg, tools, offline, err = lookingTools(ctx, c, a.Options, cfg, state); err != nil {
			return err
		}
		if offline != "" {
			return errors.New(offline)
		}
		return do(cfg.Config, tools)
	}
	if err := checkEnvironment(ctx, c, a, cfg); err != nil {
		return err
	}
	token, err := cfg.Token(ctx, c.environment)
	if err != nil {
		return err
	}
	c.hide.Learn(token.Reveal())
	tools.Hetzner = hetznerClient(c.environment[settings.EndpointVariable], token, nil, lookGovernor(c))
	return do(cfg.Config, tools)
}

// runReplaceMachine replaces a control plane machine.
func runReplaceMachine(ctx context.Context, c *console, a arguments) error {
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		if err := errors.Join(refuseDuringRecovery(r.console, r.state), refuseOtherProject(ctx, r)); err != nil {
			return err
		}
		if err := examineFor(ctx, r, doctor.ForServer); err != nil {
			return err
		}
		replacer := replace.NewReplacer(r.cfg.Config, r.tools)
		flaw, err := replacer.Flaw(ctx, func(string, ...any) {})
		if err != nil {
			return err
		}
		if flaw != "" {
			r.hub.Note("it may never end: %s", flaw)
		}
		if err := agreeToFlaw(ctx, r, "replace-machine", flaw); err != nil {
			return err
		}
		var done replace.Replacement
		err = r.hub.Task("replace-machine", "a control plane machine in the place of "+a.Targets[1],
			func(say flow.Say) (err error) {
				done, err = replacer.Replace(ctx, say, a.Targets[1])
				return err
			})
		if unknown, ok := errors.AsType[*replace.UnknownMachineError](err); ok {
			return &usage.Error{Err: unknown}
		}
		if err == nil {
			r.hub.Note("%s", done)
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
