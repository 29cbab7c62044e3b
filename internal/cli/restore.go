package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runRestore makes a cluster again, all servers of which are lost.
func runRestore(ctx context.Context, c *console, a arguments, o restoreOptions) error {
	if o.Diagnose {
		return runDiagnose(ctx, c, a)
	}
	if len(a.Targets) < 2 {
		return usage.Errorf("restore needs FILE: write %s; or %s, which only looks", commandLine(c, "restore", "FILE"),
			commandLine(c, "restore", "--diagnose"))
	}
	b, err := openBackup(ctx, c, withIdentity(a), a.Targets[1], true)
	if err != nil {
		return err
	}
	if _, err := restore.New(b.cfg.Config, session.OfflineTools(b.cfg), b.Source); err != nil {
		return &usage.Error{Err: err}
	}
	if a.Options.DryRun {
		f, err := operations.PlanRestore(ctx, c.cluster(b.arguments, b.cfg), b.Source)
		if err != nil {
			return err
		}
		return printForecast(c, f, b.arguments.Options.Output)
	}
	return operate(ctx, c, b.arguments, func(ctx context.Context, r *running) error {
		plan, result, err := operations.Restore(ctx, r.Session, b.OpenedBackup, r.questions())
		if err != nil {
			return err
		}
		return conclude(ctx, r, result, outputs{
			cluster: plan.Cluster, kubeconfig: plan.Kubeconfig, talosconfig: plan.Talos, nodes: plan.Nodes,
		})
	})
}

// openedBackup is a backup that was read to its end, with the arguments and the configuration that it leads to.
type openedBackup struct {
	operations.OpenedBackup
	arguments arguments
	cfg       settings.Configuration
}

// openBackup is operations.OpenBackup, says what the file is and who made it, and reads the configuration again, with
// that of the backup in place of the defaults.
func openBackup(ctx context.Context, c *console, a arguments, name string, etcd bool) (b openedBackup, err error) {
	b.arguments = a
	if b.cfg, err = loadConfig(a, c.environment); err != nil {
		return b, err
	}
	b.OpenedBackup, err = operations.OpenBackup(ctx, c.cluster(a, b.cfg), operations.OpenOptions{Name: name, Etcd: etcd,
		Unencrypted: a.Options.Unencrypted, Unauthenticated: a.Options.Unauthenticated,
		Found: func(contents *backup.Contents) {
			fmt.Fprintf(c.stderr, "%s: %s\n", text.Printable(name), describe(contents))
		}})
	if err != nil {
		return b, err
	}
	b.arguments.base = b.Source.Contents.Config
	if b.cfg, err = loadConfig(b.arguments, c.environment); err != nil {
		return b, err
	}
	return b, c.cluster(b.arguments, b.cfg).CheckLab()
}

// restoreOptions are the flags of restore.
type restoreOptions struct {
	Diagnose bool // only find out what is lost
}

func newRestoreCommand(in *invocation) *cobra.Command {
	var own restoreOptions
	cmd := in.command("restore [FILE]", groupRecovery,
		"recreate a cluster from a backup after all of its servers were lost; --diagnose only reports what is lost",
		func(ctx context.Context, c *console, a arguments) error {
			return runRestore(ctx, c, a, own)
		})
	o := &in.arguments.Options
	addAcceptFlags(cmd, o)
	addSkipDoctorFlag(cmd, o)
	addDryRunFlag(cmd, o, "only say what would be done")
	cmd.Flags().BoolVar(&own.Diagnose, "diagnose", false,
		"only find out which disaster it is, what to type, and what would be lost; a backup may be named or not")
	return cmd
}
