package slipway

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/readopt"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// BackupFile is the backup that a recovery reads. Keys and stores are those that the configuration names.
type BackupFile struct {
	Name            string // path of the file, or its URL in a store (s3://bucket/prefix/file)
	Unencrypted     bool   // accept a file that is not encrypted
	Unauthenticated bool   // accept a file of which nothing proves who made it
}

// Restore creates the cluster of a backup again, after all of its servers were lost: with the same data, keys and
// certificates. The configuration has to name the cluster and the namespace of the backup; versions and server types are
// those of the backup. A backup that is damaged, or of another cluster, is an error before anything is changed. It calls
// Options.Consent. To resume an interrupted restore, call it again with the same file. The result is nil if no step was
// run.
func Restore(ctx context.Context, cfg config.Config, o Options, file BackupFile) (r *Result, err error) {
	k, b, err := openBackup(ctx, cfg, o, file)
	if err != nil {
		return nil, err
	}
	if _, err := restore.New(k.Cfg.Config, session.OfflineTools(k.Cfg), b.Source); err != nil {
		return nil, err
	}
	err = recoverCluster(ctx, k, o, "restore", func(ctx context.Context, s *session.Session, ask session.Questions) error {
		_, is, err := operations.Restore(ctx, s, b, ask)
		r = newResult(is)
		return err
	})
	return r, err
}

// Readopt puts the Cluster API objects of a backup into a management cluster again, where they were lost and the
// cluster's servers live. It compares the backup with the cluster first; a difference is an error with its ID, unless
// the ID is in accept. It needs Options.Yes or Options.Confirm. To resume an interrupted readoption, call it again with
// the same file. The result is nil if no step was run.
func Readopt(ctx context.Context, cfg config.Config, o Options, file BackupFile, accept ...string) (r *Result,
	err error) {
	k, b, err := openBackup(ctx, cfg, o, file)
	if err != nil {
		return nil, err
	}
	if _, err := readopt.New(k.Cfg.Config, session.OfflineTools(k.Cfg), b.Source, accept); err != nil {
		return nil, err
	}
	err = recoverCluster(ctx, k, o, "readopt", func(ctx context.Context, s *session.Session, ask session.Questions) error {
		_, is, err := operations.Readopt(ctx, s, operations.ReadoptOptions{Source: b.Source, Accept: accept}, ask)
		r = newResult(is)
		return err
	})
	return r, err
}

// RecoverQuorum creates etcd again from the member with the newest data, where etcd has lost its quorum and servers of
// the control plane live. The other servers' EPHEMERAL partitions are wiped. It needs Options.Yes or Options.Confirm. To
// resume an interrupted recovery, call it again.
func RecoverQuorum(ctx context.Context, cfg config.Config, o Options) error {
	k, err := cluster(cfg, o)
	if err != nil {
		return err
	}
	return recoverCluster(ctx, k, o, "recover-quorum", operations.RecoverQuorum)
}

// openBackup reads the backup to its end, before anything is opened or changed.
func openBackup(ctx context.Context, cfg config.Config, o Options, file BackupFile) (k session.Cluster,
	b operations.OpenedBackup, err error) {
	if file.Name == "" {
		return k, b, errors.New("slipway.BackupFile: Name is empty")
	}
	if k, err = cluster(cfg, o); err != nil {
		return k, b, err
	}
	if err := k.CheckLab(); err != nil {
		return k, b, err
	}
	b, err = operations.OpenBackup(ctx, k, operations.OpenOptions{Name: file.Name, Etcd: true,
		Unencrypted: file.Unencrypted, Unauthenticated: file.Unauthenticated})
	return k, b, err
}

// recoverCluster runs a recovery in a session of its own: one that is opened for a bootstrap refuses a lost cluster.
func recoverCluster(ctx context.Context, k session.Cluster, o Options, name string,
	do func(context.Context, *session.Session, session.Questions) error) error {
	s, err := open(ctx, k, o)
	if err != nil {
		return err
	}
	_ = s.operate(ctx, name, func(ctx context.Context, ask session.Questions) error {
		return do(ctx, s.session, ask)
	}) // Close returns its error
	return s.Close()
}
