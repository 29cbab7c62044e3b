package cli

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// accessTo is the access to the backups of a configuration.
func accessTo(c *console, cfg settings.Configuration) backupfile.Access {
	return operations.BackupAccess(c.cluster(arguments{}, cfg))
}

// withIdentity puts --identity in the place of its variable.
func withIdentity(a arguments) arguments {
	if a.Options.Identity != "" {
		a.Values = append(slices.Clone(a.Values), settings.Assign("BACKUP_IDENTITY_FILE", a.Options.Identity))
	}
	return a
}

// instead puts the flags in the place of their variables.
func (o backupOptions) instead(a arguments) arguments {
	a.Values = slices.Clone(a.Values)
	if o.To != "" {
		a.Values = append(a.Values, settings.Assign("BACKUP_TO", o.To))
	}
	if o.Keep != 0 {
		a.Values = append(a.Values, settings.Assign("BACKUP_KEEP", strconv.Itoa(o.Keep)))
	}
	return a
}

// runBackup makes one backup, or one after another. It reads from the clusters and
// from Hetzner, and takes no lock: a run at work meanwhile is no harm to it.
func runBackup(ctx context.Context, c *console, a arguments, o backupOptions) error {
	a = o.instead(a)
	cfg, _, err := configAndState(ctx, c, a)
	if err != nil {
		return err
	}
	hub := &session.Hub{Run: "backup", Hide: c.hide, Displays: runDisplays(c, a.Options)}
	defer hub.Close()
	b, err := operations.NewBackups(ctx, c.cluster(a, cfg), hub, o.Plain)
	if err != nil {
		return err
	}
	if o.Every != 0 {
		return b.Repeat(ctx, o.Every)
	}
	_, err = b.Create(ctx)
	return err
}

// backupOptions are the flags of backup.
type backupOptions struct {
	To    string        // where; empty: BACKUP_TO
	Keep  int           // how many stay; 0: BACKUP_KEEP
	Every time.Duration // again and again; 0: once
	Plain bool          // unencrypted
}

func newBackupCommand(in *invocation) *cobra.Command {
	var own backupOptions
	cmd := in.command("backup", groupRecovery,
		"back up everything that a restore needs, to one encrypted file in a folder or an S3 store",
		func(ctx context.Context, c *console, a arguments) error {
			return runBackup(ctx, c, a, own)
		})
	addToFlag(cmd, &own.To)
	addEveryFlag(cmd, &own.Every, "keep running, with a backup every `6h`")
	cmd.Flags().IntVar(&own.Keep, "keep", 0, "keep the newest `N` of this cluster there, in place of BACKUP_KEEP")
	cmd.Flags().BoolVar(&own.Plain, "unencrypted", false, "not encrypted: readable by everyone who has the file, with "+
		"all keys of the cluster in it")
	cmd.AddCommand(newBackupListCommand(in), newBackupVerifyCommand(in), newBackupKeyCommand(in),
		newBackupCronJobCommand(in))
	return cmd
}
