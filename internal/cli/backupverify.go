package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runBackupVerify opens a backup and looks at all of it, as a restore would.
func runBackupVerify(ctx context.Context, c *call, k session.Cluster) error {
	v, err := operations.VerifyBackup(ctx, k, c.word(2), c.Unencrypted)
	if err != nil {
		return err
	}
	return c.printLine(v, func(out io.Writer, _ int) error { return printVerified(out, v) })
}

// printVerified prints what a verification found.
func printVerified(out io.Writer, v operations.VerifiedBackup) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	h := v.Header
	manager := "a management cluster"
	if h.SelfManaged {
		manager = "the cluster itself"
	}
	fmt.Fprintf(w, "file\t%s\nmade by\t%s\n", v.Origin, maker(v.Origin, h))
	fmt.Fprintf(w, "cluster\t%s, kube-system %s, managed by %s\n", text.Printable(h.Cluster), text.Printable(h.UID),
		manager)
	fmt.Fprintf(w, "taken\t%s, by Slipway %s%s\n", h.Taken.Format(time.RFC3339), text.Printable(h.Slipway), onHost(h))
	fmt.Fprintf(w, "versions\tTalos %s, Kubernetes %s\n", text.Printable(h.Versions["TALOS_VERSION"]),
		text.Printable(h.Versions["KUBERNETES_VERSION"]))
	fmt.Fprintf(w, "etcd\trevision %d, %d keys, hash %08x, %s\n", v.Etcd.Revision, v.Etcd.Keys, v.Etcd.Hash,
		text.Size(v.Etcd.Size))
	fmt.Fprintf(w, "besides\t%d objects, %d secrets, %d files, %d releases, %d resources at Hetzner\n",
		v.Counts.Objects, v.Counts.Secrets, v.Counts.Files, v.Counts.Releases, v.Counts.Resources)
	but := ""
	if !v.Origin.Authentic() {
		but = ", but nothing shows who made it"
	}
	fmt.Fprintf(w, "verified\tevery sum is right, and etcd restores from it%s\n", but)
	return w.Flush()
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

func newBackupVerifyCommand(c *call) *cobra.Command {
	cmd := c.command("verify FILE", "",
		"open a backup, verify its checksums and restore its etcd into a scratch folder", withCluster(runBackupVerify))
	addIdentityFlag(cmd, &c.arguments)
	addUnencryptedFlag(cmd, &c.arguments)
	return cmd
}
