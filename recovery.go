package slipway

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/readopt"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/platform"
)

// BackupFile is the backup that a recovery reads. Keys and stores are those that the configuration names.
type BackupFile struct {
	Name            string // path of the file, or its URL in a store (s3://bucket/prefix/file)
	Unencrypted     bool   // accept a file that is not encrypted
	Unauthenticated bool   // accept a file of which nothing proves who made it
}

// Restore creates the cluster of a backup again, after all of its servers were lost: with the same data, keys and
// certificates. The configuration has to name the cluster and the namespace of the backup. Versions, server types and
// networks are those of the backup; everything else, such as the firewall and add-ons, is taken from the configuration.
// A backup that is damaged, or of another cluster, is an error before anything is changed. It calls Options.Consent. To
// resume an interrupted restore, call it again with the same file. The result is nil if no step was run.
func Restore(ctx context.Context, cfg config.Config, o Options, file BackupFile) (r *Result, err error) {
	k, b, err := openBackup(ctx, cfg, o, file, true)
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

// ReadoptOptions name the backup, and what of its differences from the cluster is accepted.
type ReadoptOptions struct {
	Backup BackupFile
	Accept []string // IDs of differences
}

// Readopt puts the Cluster API objects of a backup into a management cluster again, where they were lost and the
// cluster's servers live. It compares the backup with the cluster first; a difference that is not accepted is an error
// with its ID. It needs Options.Yes or Options.Confirm. To resume an interrupted readoption, call it again with the
// same file. The result is nil if no step was run.
func Readopt(ctx context.Context, cfg config.Config, o Options, r ReadoptOptions) (result *Result, err error) {
	k, b, err := openBackup(ctx, cfg, o, r.Backup, false)
	if err != nil {
		return nil, err
	}
	if _, err := readopt.New(k.Cfg.Config, session.OfflineTools(k.Cfg), b.Source, r.Accept); err != nil {
		return nil, err
	}
	err = recoverCluster(ctx, k, o, "readopt", func(ctx context.Context, s *session.Session, ask session.Questions) error {
		_, is, err := operations.Readopt(ctx, s, operations.ReadoptOptions{Source: b.Source, Accept: r.Accept}, ask)
		result = newResult(is)
		return err
	})
	return result, err
}

// RecoverQuorum creates etcd again from the member with the newest data, where etcd has lost its quorum and servers of
// the control plane live. The other servers' EPHEMERAL partitions are wiped. It needs Options.Yes or Options.Confirm.
// To resume an interrupted recovery, call it again.
func RecoverQuorum(ctx context.Context, cfg config.Config, o Options) error {
	k, err := cluster(cfg, o)
	if err != nil {
		return err
	}
	return recoverCluster(ctx, k, o, "recover-quorum", operations.RecoverQuorum)
}

// DrillOptions are the choices of a drill.
type DrillOptions struct {
	Backup  BackupFile // is restored; without a name that of a cluster which the drill creates
	Faults  uint64     // seed of random faults during the restore; 0: none
	KeepLab bool       // leave its lab up, and keep its folder
}

// DrillReport is what a drill found out.
type DrillReport struct {
	// Passed is true if everything that was compared is as it was.
	Passed      bool
	Comparisons []Comparison
	RTO         time.Duration // recovery time: from the loss of the servers to the whole cluster
	RPO         time.Duration // data loss: from the last write that is there to the loss; with a backup, its age
	Bootstrap   time.Duration // of the cluster that was lost; 0 with DrillOptions.Backup
}

// Comparison is one property of a restored cluster that has to be as it was.
type Comparison struct {
	What string
	Same bool
	Seen string // what it is, or how it differs
}

// Drill rehearses the loss of a cluster in a lab of its own, which it starts and ends: it creates a cluster of the
// configuration, backs it up, deletes its servers, restores it, and compares the two. With DrillOptions.Backup it
// restores that backup and compares the cluster with it; the real cluster is not asked. A drill that finds a difference
// returns no error: check Passed. Options.StateDir must not hold anything, and is deleted if the drill has passed;
// Token, Management and Hetzner are not used.
func Drill(ctx context.Context, cfg config.Config, o Options, d DrillOptions) (r DrillReport, err error) {
	o.Lab, o.Token, o.Management, o.Hetzner = true, platform.Secret{}, nil, nil
	options := drill.Options{Faults: d.Faults, KeepLab: d.KeepLab,
		Displays: func() []session.Display { return displays(o) }}
	var k session.Cluster
	if d.Backup.Name == "" {
		k, err = cluster(cfg, o)
	} else {
		options.Backup = &operations.OpenedBackup{}
		k, *options.Backup, err = openBackup(ctx, cfg, o, d.Backup, false)
	}
	if err != nil {
		return r, err
	}
	ctx, cancel, outlive := interruptible(ctx)
	defer cancel(nil)
	defer outlive()
	is, err := drill.Run(ctx, k, options)
	for _, c := range is.Comparisons {
		r.Comparisons = append(r.Comparisons, Comparison(c))
	}
	r.Passed, r.RTO, r.RPO, r.Bootstrap = is.Passed, is.RTO, is.RPO.Time, is.Bootstrap
	return r, redacted(k.Caller.Hide, err)
}

// openBackup reads the backup to its end, before anything is opened or changed; etcd restores its etcd in a scratch
// folder, too.
func openBackup(ctx context.Context, cfg config.Config, o Options, file BackupFile, etcd bool) (k session.Cluster,
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
	b, err = operations.OpenBackup(ctx, k, operations.OpenOptions{Name: file.Name, Etcd: etcd,
		Unencrypted: file.Unencrypted, Unauthenticated: file.Unauthenticated})
	return k, b, redacted(k.Caller.Hide, err)
}

// recoverCluster runs a recovery in a session of its own: one that is opened for a bootstrap refuses a lost cluster.
func recoverCluster(ctx context.Context, k session.Cluster, o Options, name string,
	do func(context.Context, *session.Session, session.Questions) error) (err error) {
	s, err := open(ctx, k, o, name)
	if err != nil {
		return err
	}
	defer func() { err = s.end(err) }() // also after a panic, so that the lease is given back
	return s.operate(ctx, name, func(ctx context.Context, ask session.Questions) error {
		return do(ctx, s.session, ask)
	})
}
