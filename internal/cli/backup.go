package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// backupOptions are the flags of backup.
type backupOptions struct {
	To    string        // where; empty: BACKUP_TO
	Keep  int           // how many stay; 0: BACKUP_KEEP
	Every time.Duration // again and again; 0: once
	Plain bool          // unencrypted
	// FromServers makes the Cluster API objects, which are lost, from the servers.
	FromServers bool
}

// values puts the flags in the place of their variables.
func (o backupOptions) values() (values []settings.Assignment) {
	if o.To != "" {
		values = append(values, settings.Assign("BACKUP_TO", o.To))
	}
	if o.Keep != 0 {
		values = append(values, settings.Assign("BACKUP_KEEP", strconv.Itoa(o.Keep)))
	}
	return values
}

// action is one on the cluster that is asked for, with the flags.
func (o *backupOptions) action(do func(context.Context, *call, session.Cluster, backupOptions) error) action {
	return func(ctx context.Context, c *call) error {
		k, err := c.load(o.values()...)
		if err != nil {
			return err
		}
		return do(ctx, c, k, *o)
	}
}

// backUp makes one backup, or one after another. It reads from the clusters and
// from Hetzner, and takes no lock: a run at work meanwhile is no harm to it.
func backUp(ctx context.Context, c *call, k session.Cluster, o backupOptions) error {
	if o.FromServers && o.Every != 0 {
		return usage.Errorf("--every does not go with --from-servers, which is for a cluster without its objects")
	}
	if _, err := k.State(ctx); err != nil {
		return err
	}
	outliveReaders()
	hub := c.hub("backup")
	defer hub.Close()
	b, err := operations.NewBackups(ctx, k, hub, o.Plain)
	if err != nil {
		return err
	}
	if o.Every != 0 {
		return b.Repeat(ctx, o.Every)
	}
	b.FromServers = o.FromServers
	_, err = b.Create(ctx)
	return err
}

// offerBackup asks the operator whether to back the cluster up before something that cannot be undone. Where the
// operator cannot be asked, or no key for a backup is configured, it says how to make one. With --yes it is silent. A
// backup that fails ends the run; a no does not.
func offerBackup(ctx context.Context, c *call, s *session.Session, danger string) error {
	if c.Yes {
		return nil
	}
	if _, err := s.Tools.Files.Read(platform.Kubeconfig); errors.Is(err, fs.ErrNotExist) {
		return nil // there is no cluster yet
	}
	_, unsealed := operations.BackupAccess(s.Cluster).Seal(ctx, false)
	if unsealed != nil || c.width() == 0 || !c.canPrompt() || c.Output != "text" {
		s.Hub.Note("%s: the target backup writes a backup first (docs/backup.md)", danger)
		return nil
	}
	question := fmt.Sprintf("%s. Back cluster %s up to %s first? [yes/no] ", danger, s.Cfg.ClusterName, s.Cfg.BackupTo)
	if err := c.confirm(ctx, question, "yes"); errors.Is(err, errNotConfirmed) {
		return nil
	} else if err != nil {
		return err
	}
	return backUpInSession(ctx, c, s)
}

// backUpInSession makes a backup while a session is open.
func backUpInSession(ctx context.Context, c *call, s *session.Session) error {
	q := s.Request
	q.Targets = []string{"backup"}
	k, err := session.Load(s.Caller, q)
	if err != nil {
		return err
	}
	return backUp(ctx, c, k, backupOptions{})
}

func newBackupCommand(c *call) *cobra.Command {
	var own backupOptions
	cmd := c.command("backup", groupRecovery,
		"back up everything that a restore needs, to one encrypted file in a folder or an S3 store",
		own.action(backUp))
	addToFlag(cmd, &own.To)
	addEveryFlag(cmd, &own.Every, "keep running, with a backup every `6h`")
	cmd.Flags().IntVar(&own.Keep, "keep", 0, "keep the newest `N` of this cluster there, in place of BACKUP_KEEP")
	cmd.Flags().BoolVar(&own.Plain, "unencrypted", false, "not encrypted: readable by everyone who has the file, with "+
		"all keys of the cluster in it")
	cmd.Flags().BoolVar(&own.FromServers, "from-servers", false, "of a cluster whose Cluster API objects are "+
		"lost: make them from the servers, for readopt")
	cmd.AddCommand(newBackupListCommand(c), newBackupVerifyCommand(c), newBackupKeyCommand(c),
		newBackupCronJobCommand(c))
	return cmd
}
