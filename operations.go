package slipway

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// UpgradeOptions are the choices of an upgrade to the versions of the configuration.
type UpgradeOptions struct {
	// Via lists the Kubernetes patch releases to pass through. By default it is the newest patch release of each minor
	// version in between.
	Via []string
	// PauseAfter names a stage to pause after, or FirstServer. The same call without it continues. Optional.
	PauseAfter string
	// InPlace upgrades Talos to a patch release on the existing control plane servers, without replacing them.
	InPlace bool
}

// ApplyOptions are the choices of Apply.
type ApplyOptions struct {
	// InPlace changes the machine configuration of the existing control plane servers, and Talos to a patch release,
	// without replacing them. What cannot be changed in this way is an error.
	InPlace bool
	// PauseAfter names a stage to pause after, or FirstServer. The same call without it continues. Optional.
	PauseAfter string
}

// FirstServer is what an upgrade or a change can be paused after besides its stages: the first control plane server has
// the change, and no other. A server that is replaced is kept beside its successor meanwhile.
const FirstServer = upgrade.FirstServer

// UpgradeResult is the result of Upgrade or Apply.
type UpgradeResult struct {
	Stages []string // in their order; empty: there was nothing to change
	Done   bool     // no stage is left
}

// Upgrade brings the cluster to the versions of the configuration, stage by stage, with a check after each. It needs
// Options.Yes or Options.Confirm. To resume an interrupted upgrade, call it again.
func (s *Session) Upgrade(ctx context.Context, o UpgradeOptions) (r UpgradeResult, err error) {
	err = s.operate(ctx, "upgrade", func(ctx context.Context, ask session.Questions) error {
		is, err := operations.Upgrade(ctx, s.session, operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter,
			InPlace: o.InPlace}, ask)
		r = upgradeResult(is)
		return err
	})
	return r, err
}

// AbortUpgrade undoes an Upgrade or Apply that is replacing the first control plane server: the new server is deleted,
// and those from before stay. It is an error where one of those was deleted already. It needs Options.Yes or
// Options.Confirm.
func (s *Session) AbortUpgrade(ctx context.Context) error {
	return s.operate(ctx, "upgrade --abort", func(ctx context.Context, ask session.Questions) error {
		_, err := operations.AbortUpgrade(ctx, s.session, ask)
		return err
	})
}

// Apply brings a cluster that manages itself to the configuration: to its versions as Upgrade does, to its values and
// manifests that were changed since they were applied last, and then to its number of control plane servers. Fields
// that were changed in the cluster since, and not in the configuration, stay. It needs Options.Yes or Options.Confirm.
// To resume an interrupted change, call it again.
func (s *Session) Apply(ctx context.Context, o ApplyOptions) (r UpgradeResult, err error) {
	err = s.operate(ctx, "apply", func(ctx context.Context, ask session.Questions) error {
		b, err := s.session.Plan()
		if err != nil {
			return err
		}
		managed, err := b.Plan.PivotPassed(ctx, s.session.Journal())
		if err != nil {
			return err
		}
		if !managed {
			return errors.New("apply the configuration: the cluster does not manage itself yet: run the target all")
		}
		is, err := operations.Apply(ctx, s.session, b, operations.ApplyOptions(o), ask)
		r = upgradeResult(is)
		return err
	})
	return r, err
}

func upgradeResult(is operations.UpgradeResult) (r UpgradeResult) {
	for _, stage := range is.Stages {
		r.Stages = append(r.Stages, stage.Name)
	}
	if is.Scale != nil {
		r.Stages = append(r.Stages, "scale")
	}
	r.Done = is.Done
	return r
}

// ScaleControlPlane changes the number of servers of the control plane, one after another while etcd keeps its quorum.
// To delete servers it needs Options.Yes or Options.Confirm. The configuration (config.Config.ControlPlaneReplicas) has
// to get the number, too: later runs name the difference.
func (s *Session) ScaleControlPlane(ctx context.Context, servers int) error {
	return s.scale(ctx, operations.ScaleOptions{Count: servers})
}

// ScalePool changes the number of servers of a worker pool. To delete servers it needs Options.Yes or Options.Confirm.
// The configuration (config.WorkerPool) has to get the number, too: a later run brings the configured one back.
func (s *Session) ScalePool(ctx context.Context, pool string, servers int) error {
	if pool == "" {
		return errors.New("scale a worker pool: its name is empty")
	}
	return s.scale(ctx, operations.ScaleOptions{Pool: pool, Count: servers})
}

func (s *Session) scale(ctx context.Context, o operations.ScaleOptions) error {
	return s.operate(ctx, "scale", func(ctx context.Context, ask session.Questions) error {
		return operations.Scale(ctx, s.session, o, ask)
	})
}

// ReplaceMachine replaces the control plane server of a Machine by a new one, if etcd keeps its quorum meanwhile. It
// does not ask before it deletes the server.
func (s *Session) ReplaceMachine(ctx context.Context, machine string) error {
	return s.operate(ctx, "replace-machine", func(ctx context.Context, ask session.Questions) error {
		_, err := operations.ReplaceMachine(ctx, s.session, machine, ask)
		return err
	})
}

// RotateCA replaces the certificate authorities of the cluster's Talos API and Kubernetes API, server by server and
// without a reboot: kubeconfigs and talosconfigs from before are refused in the end. It restarts every workload that
// uses the Kubernetes API, and pauses Cluster API meanwhile. It needs Options.Yes or Options.Confirm. To resume an
// interrupted rotation, call it again.
func (s *Session) RotateCA(ctx context.Context) error {
	return s.operate(ctx, "rotate ca", func(ctx context.Context, ask session.Questions) error {
		return operations.RotateCA(ctx, s.session, ask)
	})
}

// DestroyOptions are options of Destroy.
type DestroyOptions struct {
	Images      bool // delete the snapshots that were made for the cluster, too
	Volumes     bool // delete the volumes that were made in the cluster, too, with their data
	KeepAddress bool // keep the Primary IP of the control plane endpoint for the next cluster of this name
}

// Destroy deletes the cluster and everything that was created for it, for good, and makes the state folder free for
// another one. It needs Options.Yes or Options.Confirm.
func (s *Session) Destroy(ctx context.Context, o DestroyOptions) error {
	return s.operate(ctx, "destroy", func(ctx context.Context, ask session.Questions) error {
		return operations.Destroy(ctx, s.session, operations.DestroyOptions{Options: destroy.Options{Images: o.Images,
			Volumes: o.Volumes, KeepAddress: o.KeepAddress}}, ask)
	})
}

// operate runs an operation with the journal locked.
func (s *Session) operate(ctx context.Context, name string,
	do func(context.Context, session.Questions) error) error {
	return s.do(ctx, []string{name}, func(ctx context.Context, ask session.Questions) error {
		return s.session.Locked(ctx, func(ctx context.Context) error { return do(ctx, ask) })
	})
}

// BackupResult is the backup that was made.
type BackupResult struct {
	Place string // of the backups: a folder or a store
	Name  string // of the file in it
	Bytes int64
}

// Backup makes one backup of a cluster, in the place and with the keys that its configuration names (config.Config:
// BackupTo, BackupRecipients), and deletes backups beyond BackupKeep. It takes no lock and changes nothing else.
func Backup(ctx context.Context, cfg config.Config, o Options) (r BackupResult, err error) {
	return backUp(ctx, cfg, o, false)
}

// BackupFromServers is Backup for a cluster whose Cluster API objects are lost, and of which there is no backup: they
// are made from its servers, for Readopt. The state folder has to have an administrator's kubeconfig and talosconfig.
func BackupFromServers(ctx context.Context, cfg config.Config, o Options) (BackupResult, error) {
	return backUp(ctx, cfg, o, true)
}

func backUp(ctx context.Context, cfg config.Config, o Options, fromServers bool) (r BackupResult, err error) {
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
	b.FromServers = fromServers
	saved, err := b.Create(ctx)
	return BackupResult{Place: b.Store.String(), Name: saved.Name, Bytes: saved.Size}, err
}
