package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runBackupList lists what lies there, of every cluster.
func runBackupList(ctx context.Context, c *call, k session.Cluster, _ backupOptions) error {
	list, err := operations.ListBackups(ctx, k)
	if err != nil {
		return err
	}
	return c.printLine(list, func(out io.Writer, _ int) error { return printBackups(out, list) })
}

// printBackups prints a list of backups.
func printBackups(out io.Writer, list operations.BackupList) error {
	if len(list.Backups) == 0 {
		fmt.Fprintf(out, "there is no backup in %s\n", list.Place)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tTAKEN\tAGE\tSIZE\tNAME")
	for _, s := range list.Backups {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", text.Printable(s.Cluster), s.Taken.Format(time.RFC3339),
			time.Since(s.Taken).Truncate(time.Second), text.Size(s.Size), text.Printable(s.Name))
	}
	return w.Flush()
}

func newBackupListCommand(c *call) *cobra.Command {
	var own backupOptions
	cmd := c.command("list", "", "list the backups", own.action(runBackupList))
	addToFlag(cmd, &own.To)
	return cmd
}
