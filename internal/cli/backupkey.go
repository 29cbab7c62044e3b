package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runBackupKey writes the key that authenticates the backups of a cluster into a new file, for a machine that makes
// them and holds no key that opens them. It is never printed.
func runBackupKey(_ context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(withIdentity(a), c.environment)
	if err != nil {
		return err
	}
	key, err := accessTo(c, cfg).Derive(keys.Scope{Environment: a.Options.Environment(), Cluster: cfg.ClusterName})
	if err != nil {
		return err
	}
	path := settings.InFolder(c.workDir, settings.AtHome(a.Targets[2], c.environment["HOME"]))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usage.Errorf("create the file of the %s, which must not exist: %w", key, err)
	}
	_, err = file.WriteString(key.Secret() + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("write the %s: %w", key, err), os.Remove(path))
	}
	_, err = fmt.Fprintf(c.stdout, "%s has the %s (%s): BACKUP_AUTHENTICATION_KEY_FILE names it where backups are made\n",
		text.Printable(path), key, key.ID())
	return err
}

func newBackupKeyCommand(in *invocation) *cobra.Command {
	cmd := in.command("key FILE", "", "write the key that authenticates the cluster's backups, and opens none, into a new file",
		runBackupKey)
	addIdentityFlag(cmd, &in.arguments.Options)
	return cmd
}

// describe says of a backup what it is, who made it, and of which cluster it says to be.
func describe(c *backup.Contents) string {
	h := c.Header
	return fmt.Sprintf("%s; %s; of cluster %s, taken %s by Slipway %s%s", c.Origin, maker(c.Origin, h),
		text.Printable(h.Cluster), h.Taken.Format(time.RFC3339), text.Printable(h.Slipway), onHost(h))
}

// maker says what shows who made a backup.
func maker(o backup.Origin, h backup.Header) string {
	switch o.Authenticated {
	case backup.ByKey:
		return fmt.Sprintf("authenticated by the key of cluster %s (%s)", text.Printable(h.Scope().String()),
			text.Printable(o.Key))
	case backup.ByThePassphrase:
		return "authenticated by the passphrase"
	case backup.ByUnknownKey:
		return fmt.Sprintf("not authenticated: by a key that is not at hand (%s)", text.Printable(o.Key))
	}
	return "not authenticated"
}

func onHost(h backup.Header) string {
	if h.Host == "" {
		return ""
	}
	return " on " + text.Printable(h.Host)
}
