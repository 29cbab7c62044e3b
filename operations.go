package slipway

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// UpgradeOptions are the choices of an upgrade to the versions of the configuration.
type UpgradeOptions struct {
	// Via has patch releases of Kubernetes to go through, in place of the newest of each minor version in between.
	Via []string
	// PauseAfter is a stage to end after; empty: none. The same call without it does the rest.
	PauseAfter string
	// InPlace upgrades Talos to a patch release on the control plane servers that there are, without replacing them.
	InPlace bool
}

// UpgradeResult is what an upgrade has come to.
type UpgradeResult struct {
	Stages []string // in their order; empty: there was nothing to upgrade
	Done   bool     // no stage is left
}

// Upgrade brings the cluster to the versions of the configuration, stage by stage, with a check after each. It needs
// Options.Yes, or Options.Confirm. One that was cut off is resumed by the same call.
func (s *Session) Upgrade(ctx context.Context, o UpgradeOptions) (r UpgradeResult, err error) {
	err = s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		is, err := operations.Upgrade(ctx, s.session, operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter,
			InPlace: o.InPlace, Again: []string{"upgrade"}}, ask)
		for _, stage := range is.Stages {
			r.Stages = append(r.Stages, stage.Name)
		}
		r.Done = is.Done
		return err
	})
	return r, err
}

// ScaleControlPlane changes the number of servers of the control plane, one after another while etcd keeps its quorum.
func (s *Session) ScaleControlPlane(ctx context.Context, servers int) error {
	return s.scale(ctx, operations.ScaleOptions{Count: servers})
}

// ScalePool changes the number of servers of a worker pool. To delete servers it needs Options.Yes, or Options.Confirm.
func (s *Session) ScalePool(ctx context.Context, pool string, servers int) error {
	return s.scale(ctx, operations.ScaleOptions{Pool: pool, Count: servers})
}

func (s *Session) scale(ctx context.Context, o operations.ScaleOptions) error {
	return s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		return operations.Scale(ctx, s.session, o, ask)
	})
}

// ReplaceMachine creates a new control plane server in the place of that of a Machine, if etcd can do without it
// meanwhile.
func (s *Session) ReplaceMachine(ctx context.Context, machine string) error {
	return s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		_, err := operations.ReplaceMachine(ctx, s.session, machine, ask)
		return err
	})
}

// DestroyOptions are what a deletion takes besides the cluster.
type DestroyOptions struct {
	Images      bool // the snapshots that were made for the cluster, too
	Volumes     bool // the volumes that were made in the cluster, too, with their data
	KeepAddress bool // leaves the Primary IP of the control plane endpoint to the next cluster of this name
}

// Destroy deletes the cluster and everything that was created for it, for good, and makes the state folder free for
// another one. It needs Options.Yes, or Options.Confirm.
func (s *Session) Destroy(ctx context.Context, o DestroyOptions) error {
	return s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		return operations.Destroy(ctx, s.session, operations.DestroyOptions{Options: destroy.Options{Images: o.Images,
			Volumes: o.Volumes, KeepAddress: o.KeepAddress}}, ask)
	})
}

// operate carries an operation out with the journal locked. It ends where the lease of the state is lost.
func (s *Session) operate(ctx context.Context, do func(context.Context, session.Questions) error) error {
	ctx, end := s.until(ctx)
	defer end()
	s.err = s.session.Locked(ctx, func(ctx context.Context) error { return do(ctx, s.questions()) })
	return s.err
}

// BackupResult is the backup that was made.
type BackupResult struct {
	Place string // of the backups: a folder or a store
	Name  string // of the file in it
	Bytes int64
}

// Backup makes one backup of a cluster, in the place and with the keys that its configuration names (config.Config:
// BackupTo, BackupRecipients), and removes what is more than it keeps. It takes no lock and changes nothing else.
func Backup(ctx context.Context, cfg config.Config, o Options) (r BackupResult, err error) {
	k, err := cluster(cfg, o)
	if err != nil {
		return r, err
	}
	hub := &session.Hub{Run: "backup", Hide: k.Caller.Hide, Displays: displays(o)}
	defer hub.Close()
	b, err := operations.NewBackups(ctx, k, hub, false)
	if err != nil {
		return r, err
	}
	saved, err := b.Once(ctx)
	return BackupResult{Place: b.Store.String(), Name: saved.Name, Bytes: saved.Size}, err
}

// Restore makes the cluster of a backup again, after all of its servers were lost: same data, same keys, same address.
// The configuration is that of the backup, but for where backups and their keys are, which is read from cfg. file is
// the path of a backup, or its place in a store. One that was cut off is resumed by the same call.
func Restore(ctx context.Context, cfg config.Config, o Options, file string) (r *Result, err error) {
	k, err := cluster(cfg, o)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"BACKUP_TO", "BACKUP_IDENTITY_FILE", "BACKUP_AUTHENTICATION_KEY_FILE"} {
		if v := settings.Variable(field); v.Get(cfg) != "" {
			k.Values = append(k.Values, settings.Assign(field, v.Get(cfg)))
		}
	}
	b, err := operations.OpenBackup(ctx, k, operations.OpenOptions{Name: file, Etcd: true})
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, b.Cluster, o)
	if err != nil {
		return nil, err
	}
	_ = s.operate(ctx, func(ctx context.Context, ask session.Questions) error { // Close has its error
		_, result, err := operations.Restore(ctx, s.session, b.RestoreOptions, ask)
		r = &Result{Report: result.Report, journal: result.Journal}
		return err
	})
	return r, s.Close()
}
