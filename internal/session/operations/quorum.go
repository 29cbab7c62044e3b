package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/quorum"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
)

// RecoverQuorum brings an etcd back that has lost its quorum while its servers live. It says what it found, and asks,
// before it wipes anything.
func RecoverQuorum(ctx context.Context, s *session.Session, ask session.Questions) error {
	if err := session.RefuseDuringRestore(s.Caller, s.Folder); err != nil {
		return err
	}
	if err := s.CheckProject(ctx); err != nil {
		return err
	}
	plan, err := quorum.New(s.Cfg.Config, s.Tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	folder := records.QuorumFiles(s.Tools.Files)
	if err := agreeToRecover(ctx, s, plan, folder, ask); err != nil {
		return err
	}
	if _, err := s.RunGraph(ctx, plan.Graph, folder, plan.All); err != nil {
		return quorumIsBack(ctx, s, plan, folder, err)
	}
	if err := folder.RemoveFolder(); err != nil { // the snapshot holds every secret of the cluster
		return fmt.Errorf("everything is done, but the recovery cannot be closed: %w", err)
	}
	s.Hub.Note("etcd has its quorum again")
	return nil
}

// agreeToRecover surveys etcd, takes the snapshot and asks. A recovery that was agreed to is resumed; for one that was
// not, etcd is surveyed anew, as it may have its quorum again.
func agreeToRecover(ctx context.Context, s *session.Session, plan *quorum.Plan, folder platform.Files,
	ask session.Questions) error {
	record, err := records.ReadQuorum(s.Tools.Files)
	if err != nil {
		return err
	}
	if record != nil {
		s.Hub.Note("resuming the recovery that was begun %s", record.Began.Format(time.RFC3339))
		return nil
	}
	if err := folder.RemoveFolder(); err != nil {
		return err
	}
	if err := askToRecover(ctx, s, plan, folder, ask); err != nil {
		return nothingRecovered(s, folder, err)
	}
	return records.Consent{Cluster: s.Cfg.ClusterName, Began: time.Now().UTC()}.BeginQuorum(s.Tools.Files)
}

// surveyError is that of a survey of etcd that has not come to its end.
type surveyError struct{ error }

func (e *surveyError) Unwrap() error { return e.error }

// nothingRecovered removes what was read of etcd, also on Ctrl-C, because the snapshot holds every secret of the
// cluster, and says so.
func nothingRecovered(s *session.Session, folder platform.Files, err error) error {
	remains := "no server was changed, and what was read of etcd is removed"
	removal := folder.RemoveFolder()
	if removal != nil {
		remains = fmt.Sprintf("no server was changed; what was read of etcd, with every secret of the cluster, could not be "+
			"removed: delete %s: %v", folder, removal)
	}
	_, surveying := errors.AsType[*surveyError](err)
	switch {
	case errors.Is(err, flow.ErrInterrupted):
		return s.Interrupted(err, remains+"; to recover it, "+s.Again())
	case surveying:
		return fmt.Errorf("%w\n%s; log: %s", err, remains, s.Files.Log.Name())
	}
	return errors.Join(err, removal)
}

func askToRecover(ctx context.Context, s *session.Session, plan *quorum.Plan, folder platform.Files,
	ask session.Questions) error {
	surveyed, err := s.TryGraph(ctx, plan.Graph, folder, plan.Before)
	if err != nil && !errors.Is(err, quorum.ErrQuorum) {
		return &surveyError{err}
	}
	if err != nil {
		return err
	}
	survey, _, err := flow.Restore(ctx, surveyed.Journal, plan.Survey)
	if err != nil {
		return err
	}
	snapshot, _, err := flow.Restore(ctx, surveyed.Journal, plan.Snapshot)
	if err != nil {
		return err
	}
	for _, line := range recoveryLines(survey, snapshot) {
		s.Hub.Note("%s", line)
	}
	return s.Confirm(ctx, ask, "recover-quorum asks before it wipes servers", fmt.Sprintf(
		"Type the cluster's name (%s) to wipe these servers and make etcd again: ", s.Cfg.ClusterName), s.Cfg.ClusterName)
}

// recoveryLines say what is done and what is lost.
func recoveryLines(s etcdview.Survey, snapshot quorum.Snapshot) []string {
	lines := []string{
		fmt.Sprintf("of %s, %s has the newest data: %d keys at revision %d. etcd is rebuilt from them, on %s first",
			strings.Join(s.Servers, ", "), s.Survivor, snapshot.Keys, snapshot.Revision, s.Target),
	}
	for _, loss := range recoveryLosses(s) {
		lines = append(lines, "lost: "+loss)
	}
	for _, server := range s.Silent {
		lines = append(lines, fmt.Sprintf("%s also holds etcd data, but its etcd does not run and could not be compared: "+
			"anything that only it has is wiped. To see why it does not run: talosctl service etcd", server))
	}
	if s.Target == s.Survivor {
		lines = append(lines, "no other server is left: until etcd is created again its data are in the state folder and "+
			"nowhere else")
	}
	return lines
}

// recoveryLosses are what a recovery cannot bring back.
func recoveryLosses(s etcdview.Survey) []string {
	return []string{
		fmt.Sprintf("writes that the other members accepted and %s did not receive: at most what was written while the "+
			"quorum was lost", s.Survivor),
		"what lies on the EPHEMERAL partition of each of these servers, which are reset one after the other: images, logs, " +
			"and what Pods " +
			"keep in emptyDir and hostPath. Volumes at Hetzner stay",
	}
}

// quorumIsBack ends a recovery that has found, before it made an etcd, that the
// old one works again: what it has changed is taken back.
func quorumIsBack(ctx context.Context, s *session.Session, plan *quorum.Plan, folder platform.Files, err error) error {
	if !errors.Is(err, quorum.ErrQuorum) {
		return err
	}
	back := s.Hub.Task("abandon", "what the recovery has changed is taken back",
		func(say flow.Say) error { return plan.Abandon(ctx, say) })
	if back == nil {
		back = folder.RemoveFolder()
	}
	return errors.Join(err, back)
}
