package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runBackupKey writes the key that authenticates the backups of a cluster into a new file, for a machine that makes
// them and holds no key that opens them. It is never printed.
func runBackupKey(_ context.Context, c *call, k session.Cluster) error {
	key, err := operations.BackupAccess(k).Derive(keys.Scope{Environment: k.Environment(), Cluster: k.Cfg.ClusterName})
	if err != nil {
		return err
	}
	path := settings.InFolder(c.workDir, settings.AtHome(c.word(2), c.environment["HOME"]))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usage.Errorf("create the file of the %s, which must not exist: %w", key, err)
	}
	_, err = file.WriteString(key.Secret() + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("write the %s: %w", key, err), os.Remove(path))
	}
	return c.say("%s has the %s (%s): BACKUP_AUTHENTICATION_KEY_FILE names it where backups are made",
		text.Printable(path), key, key.ID())
}

func newBackupKeyCommand(c *call) *cobra.Command {
	cmd := c.command("key FILE", "",
		"write the key that authenticates the cluster's backups, and opens none, into a new file",
		withCluster(runBackupKey))
	addIdentityFlag(cmd, &c.arguments)
	return cmd
}
