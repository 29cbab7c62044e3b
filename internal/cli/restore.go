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
)

// runRestore makes a cluster again, all servers of which are lost.
func runRestore(ctx context.Context, c *call) error {
	file := c.word(1)
	if file == "" {
		return usage.Errorf("restore needs FILE: write %s; or %s, which only looks", commandLine(c, "restore", "FILE"),
			commandLine(c, "restore", "--diagnose"))
	}
	k, err := c.load(c.backupValues()...)
	if err != nil {
		return err
	}
	b, err := c.openBackup(ctx, k, file, true)
	if err != nil {
		return err
	}
	if _, err := restore.New(b.cluster.Cfg.Config, session.OfflineTools(b.cluster.Cfg), b.Source); err != nil {
		return &usage.Error{Err: err}
	}
	if c.DryRun {
		f, err := operations.PlanRestore(ctx, b.cluster, b.Source)
		if err != nil {
			return err
		}
		return c.print(f, f.Print)
	}
	return c.operate(ctx, b.cluster, func(ctx context.Context, s *session.Session) error {
		plan, result, err := operations.Restore(ctx, s, b.OpenedBackup, c.questions(s))
		if err != nil {
			return err
		}
		return conclude(ctx, c, s, result, operations.Outputs{
			Cluster: plan.Cluster, Kubeconfig: plan.Kubeconfig, Talosconfig: plan.Talos, Nodes: plan.Nodes,
		})
	})
}

// openedBackup is a backup that was read to its end, with the cluster that it leads to.
type openedBackup struct {
	operations.OpenedBackup
	cluster session.Cluster
}

// openBackup is operations.OpenBackup, says what the file is and who made it, and reads the configuration of the
// cluster again, with that of the backup in place of the defaults.
func (c *call) openBackup(ctx context.Context, k session.Cluster, name string, etcd bool) (b openedBackup, err error) {
	b.OpenedBackup, err = operations.OpenBackup(ctx, k, operations.OpenOptions{Name: name, Etcd: etcd,
		Unencrypted: c.Unencrypted, Unauthenticated: c.Unauthenticated,
		Found: func(contents *backup.Contents) {
			fmt.Fprintf(c.stderr, "%s: %s\n", text.Printable(name), describe(contents))
		}})
	if err != nil {
		return b, err
	}
	k.Base = b.Source.Contents.Config
	if b.cluster, err = session.Load(k.Caller, k.Request); err != nil {
		return b, err
	}
	return b, b.cluster.CheckLab()
}

func newRestoreCommand(c *call) *cobra.Command {
	var diagnose bool
	cmd := c.command("restore [FILE]", groupRecovery,
		"recreate a cluster from a backup after all of its servers were lost; --diagnose only reports what is lost",
		func(ctx context.Context, c *call) error {
			if diagnose {
				return withCluster(runDiagnose)(ctx, c)
			}
			return runRestore(ctx, c)
		})
	addAcceptFlags(cmd, &c.arguments)
	addSkipDoctorFlag(cmd, &c.arguments)
	addDryRunFlag(cmd, &c.arguments, "only say what would be done")
	cmd.Flags().BoolVar(&diagnose, "diagnose", false,
		"only find out which disaster it is, what to type, and what would be lost; a backup may be named or not")
	return cmd
}
