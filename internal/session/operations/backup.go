package operations

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/fromservers"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// BackupAccess is the access to the backups of a cluster's configuration.
func BackupAccess(k session.Cluster) backupfile.Access {
	return backupfile.Access{Config: k.Cfg.Config, Environment: k.Caller.Environment, WorkDir: k.Caller.WorkDir,
		Hide: k.Caller.Hide}
}

// Backups makes backups of a cluster. It reads from the clusters and from Hetzner, and takes no lock: a run at work
// meanwhile is no harm to it.
type Backups struct {
	Cluster session.Cluster
	Store   backup.Store
	Hub     *session.Hub
	// FromServers makes the Cluster API objects, which are lost, from the servers.
	FromServers bool

	seal backup.Seal
}

// collector reads everything that a backup holds but the snapshot of etcd.
type collector interface {
	Read(ctx context.Context, say flow.Say, version string) (*backup.CollectorSource, error)
}

// NewBackups reads the keys of the backups. plain leaves them unencrypted.
func NewBackups(ctx context.Context, k session.Cluster, hub *session.Hub, plain bool) (b Backups, err error) {
	access := BackupAccess(k)
	b = Backups{Cluster: k, Hub: hub}
	if b.seal, err = access.Seal(ctx, plain); err != nil {
		return b, err
	}
	scope := keys.Scope{Environment: k.Environment(), Cluster: k.Cfg.ClusterName}
	unproven, err := access.Authenticate(&b.seal, scope)
	if err != nil {
		return b, err
	}
	if b.Store, err = access.Store(k.Cfg.BackupTo); err == nil && unproven != "" {
		hub.Note("%s", unproven)
	}
	return b, err
}

// Create makes one backup, and then makes room.
func (b Backups) Create(ctx context.Context) (saved backup.Stored, err error) {
	at, err := b.Cluster.InspectOnline(ctx)
	if err != nil {
		return saved, err
	}
	var revision int64
	var from collector = backup.NewCollector(at.Cfg.Config, at.Tools)
	if b.FromServers {
		from = fromservers.Collector{Cfg: at.Cfg.Config, Tools: at.Tools, Note: b.Hub.Note}
	}
	err = b.Hub.Task("backup", "everything that restores the cluster, in one file", func(say flow.Say) (err error) {
		saved, revision, err = b.save(ctx, say, from)
		return err
	})
	if err != nil {
		return saved, err
	}
	b.Hub.Note("%s is verified and lies in %s: %s, etcd at revision %d or later",
		saved.Name, b.Store, text.Size(saved.Size), revision)
	keep := b.Cluster.Cfg.BackupKeep
	if keep == 0 || b.FromServers { // a backup that was made of the objects has more than this one
		return saved, nil
	}
	gone, err := backup.Prune(ctx, b.Store, saved.Cluster, saved.Name, keep)
	for _, g := range gone {
		b.Hub.Note("removed %s: %d of cluster %s are kept", g.Name, keep, g.Cluster)
	}
	return saved, err
}

func (b Backups) save(ctx context.Context, say flow.Say, from collector) (backup.Stored, int64, error) {
	source, err := from.Read(ctx, say, session.Version())
	if err != nil {
		return backup.Stored{}, 0, err
	}
	h := &source.Contents.Header
	h.Environment = b.Cluster.Environment()
	h.Host, _ = os.Hostname() // of no consequence: it tells the operator where to look
	stream, err := source.Snapshot(ctx, say)
	if err != nil {
		return backup.Stored{}, 0, err
	}
	saved, err := backup.Save(ctx, b.Store, b.seal, source.Contents, stream)
	return saved, source.Contents.Header.Etcd.Revision, errors.Join(err, stream.Close())
}

// OpenOptions are how a backup is read.
type OpenOptions struct {
	Name string // of the file, or its place in a store
	Etcd bool   // restore the etcd snapshot in a scratch folder, too
	// Unencrypted takes a plain file; Unauthenticated one of which nothing shows who made it.
	Unencrypted, Unauthenticated bool
	// Found gets what the file says of itself, before it is taken. Optional.
	Found func(*backup.Contents)
}

// OpenedBackup is a backup that was read to its end.
type OpenedBackup struct {
	File   backupfile.File
	Source backup.Cluster // that was read from the file
}

// OpenBackup reads a backup to its end, so that a damaged file is found before anything is changed. It refuses one that
// is not shown to be the operator's, and that of a cluster in the lab for a real one.
func OpenBackup(ctx context.Context, k session.Cluster, o OpenOptions) (b OpenedBackup, err error) {
	b.File = BackupAccess(k).File(o.Name, backupfile.Accept{Acts: true, Unencrypted: o.Unencrypted,
		Unauthenticated: o.Unauthenticated})
	if o.Etcd {
		b.Source.Contents, _, err = b.File.Verify(ctx)
	} else {
		b.Source.Contents, err = b.File.Read(ctx, io.Discard)
	}
	if err != nil {
		return b, backupfile.Refusal(ctx, err)
	}
	if o.Found != nil {
		o.Found(b.Source.Contents)
	}
	if made := b.Source.Contents.Header.Environment; made == statedir.EnvironmentLab && !k.Lab {
		return b, usage.Errorf("%s is the backup of a cluster in the lab: nothing of it belongs to a real cluster; with --lab it "+
			"is taken", o.Name)
	}
	return b, nil
}

// BackupList is what is stored in one place, of every cluster.
type BackupList struct {
	Kind    string          `json:"kind"` // "backups"
	Place   string          `json:"place"`
	Backups []backup.Stored `json:"backups"`
}

// ListBackups lists the backups in the configured place.
func ListBackups(ctx context.Context, k session.Cluster) (list BackupList, err error) {
	store, err := BackupAccess(k).Store(k.Cfg.BackupTo)
	if err != nil {
		return list, err
	}
	all, err := store.List(ctx)
	if all == nil {
		all = []backup.Stored{}
	}
	return BackupList{"backups", store.String(), all}, err
}

// VerifiedBackup is what VerifyBackup finds.
type VerifiedBackup struct {
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

// VerifyBackup opens a backup and looks at all of it, as a restore would. unencrypted takes a plain file.
func VerifyBackup(ctx context.Context, k session.Cluster, name string, unencrypted bool) (v VerifiedBackup, err error) {
	c, is, err := BackupAccess(k).File(name, backupfile.Accept{Unencrypted: unencrypted}).Verify(ctx)
	if err != nil {
		return v, err
	}
	v = VerifiedBackup{Kind: "backup", Origin: c.Origin, Header: c.Header, Etcd: is}
	n := &v.Counts
	n.Objects, n.Secrets, n.Files = len(c.Objects), len(c.Secrets), len(c.Files)
	n.Releases, n.Resources = len(c.Releases), len(c.Inventory.Resources)
	return v, nil
}
