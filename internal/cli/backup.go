package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
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

// backupList is what backup list prints as JSON.
type backupList struct {
	Kind    string          `json:"kind"` // "backups"
	Place   string          `json:"place"`
	Backups []backup.Stored `json:"backups"`
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
	switch every := o.Every; {
	case every == 0:
		_, err := b.Create(ctx)
		return err
	case every < shortestEvery:
		return usage.Errorf("--every %s is too often: %s is the least", every, shortestEvery)
	default:
		return backUpAgain(ctx, b, every)
	}
}

// runBackupList lists what lies there, of every cluster.
func runBackupList(ctx context.Context, c *console, a arguments, o backupOptions) error {
	cfg, err := loadConfig(o.instead(a), c.environment)
	if err != nil {
		return err
	}
	store, err := accessTo(c, cfg).Store(cfg.BackupTo)
	if err != nil {
		return err
	}
	all, err := store.List(ctx)
	if err != nil {
		return err
	}
	if a.Options.Output == "json" {
		if all == nil {
			all = []backup.Stored{}
		}
		return ui.PrintJSONLine(c.stdout, backupList{"backups", store.String(), all})
	}
	if len(all) == 0 {
		fmt.Fprintf(c.stdout, "there is no backup in %s\n", store)
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tTAKEN\tAGE\tSIZE\tNAME")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", text.Printable(s.Cluster), s.Taken.Format(time.RFC3339),
			time.Since(s.Taken).Truncate(time.Second), text.Size(s.Size), text.Printable(s.Name))
	}
	return w.Flush()
}

// verified is what verify finds.
type verified struct {
	Kind   string        `json:"kind"` // "backup"
	Origin backup.Origin `json:"origin"`
	Header backup.Header `json:"header"`
	Etcd   etcd.Content  `json:"etcd"`
	Counts struct {
		Objects   int `json:"objects"`
		Secrets   int `json:"secrets"`
		Files     int `json:"files"`
		Releases  int `json:"releases"`
		Resources int `json:"resources"`
	} `json:"counts"`
}

// runBackupVerify opens a backup and looks at all of it, as a restore would.
func runBackupVerify(ctx context.Context, c *console, a arguments) (err error) {
	cfg, err := loadConfig(withIdentity(a), c.environment)
	if err != nil {
		return err
	}
	contents, is, err := accessTo(c, cfg).File(a.Targets[2], backupfile.Accept{Unencrypted: a.Options.Unencrypted}).
		Verify(ctx)
	if err != nil {
		return err
	}
	v := newVerified(contents, is)
	if a.Options.Output == "json" {
		return ui.PrintJSONLine(c.stdout, v)
	}
	return v.print(c.stdout)
}

func newVerified(c *backup.Contents, is etcd.Content) verified {
	v := verified{Kind: "backup", Origin: c.Origin, Header: c.Header, Etcd: is}
	n := &v.Counts
	n.Objects, n.Secrets, n.Files = len(c.Objects), len(c.Secrets), len(c.Files)
	n.Releases, n.Resources = len(c.Releases), len(c.Inventory.Resources)
	return v
}

func (v verified) print(out io.Writer) error {
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

func newBackupListCommand(in *invocation) *cobra.Command {
	var own backupOptions
	cmd := in.command("list", "", "list the backups", func(ctx context.Context, c *console, a arguments) error {
		return runBackupList(ctx, c, a, own)
	})
	addToFlag(cmd, &own.To)
	return cmd
}

func newBackupVerifyCommand(in *invocation) *cobra.Command {
	cmd := in.command("verify FILE", "",
		"open a backup, verify its checksums and restore its etcd into a scratch folder", runBackupVerify)
	o := &in.arguments.Options
	addIdentityFlag(cmd, o)
	addUnencryptedFlag(cmd, o)
	return cmd
}
