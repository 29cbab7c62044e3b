package operations

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// Restore makes the cluster of a backup again, after all of its servers were lost. The result has the outputs of the
// plan.
func Restore(ctx context.Context, s *session.Session, b OpenedBackup,
	ask session.Questions) (plan *restore.Plan, result session.Result, err error) {
	if err := s.RefuseTakenOver(ctx); err != nil {
		return nil, result, err
	}
	if err := s.ExamineFor(ctx, doctor.ForRestore); err != nil {
		return nil, result, err
	}
	if err := records.RoomForRestore(s.Tools.Files, b.Source); err != nil {
		return nil, result, err
	}
	if s.Lab {
		b.Source = b.Source.Elsewhere(s.Cfg.Config)
	}
	folder := records.RestoreFiles(s.Tools.Files)
	b.Source.Snapshot = folder.Path(records.SnapshotFile)
	if plan, err = restore.New(s.Cfg.Config, s.Tools, b.Source); err != nil {
		return nil, result, &usage.Error{Err: err}
	}
	if err := s.Agree(ctx, ask, func(f *forecast.Forecast) error {
		return predictRestore(ctx, f, plan, s.Folder)
	}); err != nil {
		return plan, result, err
	}
	if err := records.PrepareRestore(s.Tools.Files, b.Source); err != nil {
		return plan, result, err
	}
	if err := refuseToBegin(ctx, s, plan); err != nil {
		return plan, result, err
	}
	restored, err := b.Source.Configure(s.Cfg.Config)
	if err != nil {
		return plan, result, &usage.Error{Err: err}
	}
	if err := s.ProvideKubernetes(ctx, restored.KubernetesVersion); err != nil {
		return plan, result, err
	}
	if err := s.Hub.Task("backup", "the etcd snapshot, out of the backup", func(say flow.Say) error {
		h := b.Source.Contents.Header
		say("of %s, cluster %s", h.Taken.Format(time.RFC3339), h.Cluster)
		return extractSnapshot(ctx, s, b.File, b.Source.Contents.Snapshot, folder)
	}); err != nil {
		return plan, result, err
	}
	end := func(files platform.Files) error { // what was begun on the lost cluster is not under way in this one
		return errors.Join(upgrade.End(files), scale.Forget(files), changes.ForgetApplied(files), records.EndRestore(files))
	}
	result, err = runRecovery(ctx, s, plan.Graph, plan.All, folder, end)
	return plan, result, err
}

// runRecovery runs the graph of a recovery, which has a journal of its own in a folder of its own, and ends its record.
func runRecovery(ctx context.Context, s *session.Session, graph *flow.Graph, targets []string, folder platform.Files,
	end func(platform.Files) error) (session.Result, error) {
	result, err := s.RunGraph(ctx, graph, folder, targets)
	if err != nil {
		return result, err
	}
	if err := end(s.Tools.Files); err != nil {
		return result, fmt.Errorf("everything is done, but its record cannot be closed: %w", err)
	}
	return result, nil
}

// refuseToBegin refuses a restore that would be refused by its first step, before the snapshot, which holds every
// secret of the cluster, lies in the folder. One that is under way has it there, and its steps ask.
func refuseToBegin(ctx context.Context, s *session.Session, plan *restore.Plan) error {
	record, err := records.ReadRestore(s.Tools.Files)
	if err != nil || record != nil {
		return err
	}
	_, err = plan.Losses(ctx, time.Now())
	return err
}

// extractSnapshot takes the etcd snapshot out of a backup. The name is given to the complete file only.
func extractSnapshot(ctx context.Context, s *session.Session, file backupfile.File, wanted backup.Snapshot,
	folder platform.Files) error {
	if err := os.MkdirAll(folder.String(), 0o700); err != nil {
		return fmt.Errorf("make the folder of the restore: %w", err)
	}
	temporary := folder.Path(records.SnapshotFile + ".new")
	extract := func() (*backup.Contents, error) {
		contents, err := file.Extract(ctx, temporary)
		if err == nil && contents.Snapshot != wanted {
			err = errors.Join(errors.New("the file was replaced by another backup since it was read first"),
				os.Remove(temporary))
		}
		if err != nil {
			return nil, backupfile.Refusal(ctx, err)
		}
		return contents, nil
	}
	contents, err := extract()
	if err != nil {
		return err
	}
	silenced, err := restore.SilenceSnapshot(backup.Cluster{Contents: contents, Snapshot: temporary})
	switch {
	case err != nil: // the file may be damaged now
		s.Hub.Note("the Cluster API in the snapshot wakes up with it, and is stopped then: %v", err)
		if _, err := extract(); err != nil {
			return err
		}
	case len(silenced) > 0:
		s.Hub.Note("taken out of the snapshot's copy, because they would create the lost servers again: Deployments %s",
			strings.Join(silenced, ", "))
	}
	return os.Rename(temporary, folder.Path(records.SnapshotFile))
}

// PlanRestore asks what a restore, or the rest of one, would do. It changes nothing.
func PlanRestore(ctx context.Context, k session.Cluster, source backup.Cluster) (f forecast.Forecast, err error) {
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return f, err
	}
	if err := records.RoomForRestore(at.Folder.Files(), source); err != nil {
		return f, err
	}
	plan, err := restore.New(at.Cfg.Config, at.Tools, source)
	if err != nil {
		return f, &usage.Error{Err: err}
	}
	f = newForecast(at)
	if f.Files, err = render.SourceFiles(at.Cfg.Overrides); err != nil {
		return f, &usage.Error{Err: err}
	}
	err = predictRestore(ctx, &f, plan, at.Folder)
	f.WithoutSecrets(k.Caller.Hide)
	return f, err
}

// predictRestore finds out what the rest of a restore would do, from its own journal.
func predictRestore(ctx context.Context, f *forecast.Forecast, plan *restore.Plan,
	state statedir.Dir) (err error) {
	if f.Offline == "" {
		if f.Losses, err = plan.Losses(ctx, time.Now()); err != nil {
			return err
		}
	}
	record, err := records.ReadRestore(state.Files())
	if err != nil {
		return err
	}
	journal := flow.Folder(records.RestoreFiles(state.Files()).String())
	if record != nil && !record.Ended.IsZero() {
		journal = flow.Memory() // that restore is set aside, and this one begins anew
	}
	return f.Ask(ctx, plan, plan.Graph, journal, plan.All, runs.ReadDurations(state, f.Environment))
}
