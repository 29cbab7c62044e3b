package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/rotation"
	"github.com/slipway-k8s/slipway/internal/session"
)

// RotateCA replaces the certificate authorities of the Talos API and the Kubernetes API. It says what it does, and
// asks, before it changes anything; a rotation that was agreed to is resumed.
func RotateCA(ctx context.Context, s *session.Session, ask session.Questions) error {
	if err := session.RefuseDuringQuorum(s.Caller, s.Folder); err != nil {
		return err
	}
	if err := s.CheckProject(ctx); err != nil {
		return err
	}
	plan, err := rotation.New(s.Cfg.Config, s.Tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	if err := agreeToRotate(ctx, s, plan, ask); err != nil {
		return err
	}
	folder := records.RotationFiles(s.Tools.Files)
	done, err := s.RunGraph(ctx, plan.Graph, folder, plan.All)
	if err != nil {
		return err
	}
	restarted, _, err := flow.Restore(ctx, done.Journal, plan.Restarted)
	if err != nil {
		return err
	}
	if err := folder.RemoveFolder(); err != nil {
		return fmt.Errorf("everything is done, but the record of the rotation cannot be removed: %w", err)
	}
	if len(restarted.Left) > 0 {
		s.Hub.Note("restart it yourself, it uses the Kubernetes API with the old authority: %s",
			strings.Join(restarted.Left, ", "))
	}
	s.Hub.Note("certificates of the old authorities are refused: give users a new kubeconfig and talosconfig")
	s.Hub.Note("backups from before have the old authorities' keys, and a restore of one brings them back: make one "+
		"now: %s", s.Caller.Command("backup"))
	return nil
}

func agreeToRotate(ctx context.Context, s *session.Session, plan *rotation.Plan, ask session.Questions) error {
	record, err := records.ReadRotation(s.Tools.Files)
	if err != nil {
		return err
	}
	if record != nil {
		s.Hub.Note("resuming the rotation that was begun %s", record.Began.Format(time.RFC3339))
		return nil
	}
	f, err := examineRotation(ctx, plan)
	if err != nil {
		return err
	}
	for _, line := range f.Lines() {
		s.Hub.Note("%s", line)
	}
	err = s.Confirm(ctx, ask, "rotate ca asks before it changes servers and restarts workloads", fmt.Sprintf(
		"Type the cluster's name (%s) to replace its certificate authorities: ", s.Cfg.ClusterName), s.Cfg.ClusterName)
	if err != nil {
		return err
	}
	folder := records.RotationFiles(s.Tools.Files)
	if err := folder.RemoveFolder(); err != nil { // the journal of a run that did not begin
		return err
	}
	if _, err := s.TryGraph(ctx, plan.Graph, folder, plan.Begin); err != nil {
		return errors.Join(fmt.Errorf("%w\nno server was changed; log: %s", err, s.Files.Log.Name()),
			folder.RemoveFolder())
	}
	return records.Consent{Cluster: s.Cfg.ClusterName, Began: time.Now().UTC()}.BeginRotation(s.Tools.Files)
}

// examineWithin is how long all servers may take to say which authorities they have.
const examineWithin = time.Minute

func examineRotation(ctx context.Context, plan *rotation.Plan) (rotation.Forecast, error) {
	ctx, cancel := context.WithTimeout(ctx, examineWithin)
	defer cancel()
	f, err := plan.Examine(ctx)
	if err != nil {
		return f, fmt.Errorf("the certificate authorities are not replaced, and nothing was changed: %w", err)
	}
	return f, nil
}

// PlanRotateCA predicts what RotateCA would do. It changes nothing.
func PlanRotateCA(ctx context.Context, k session.Cluster) (rotation.Forecast, error) {
	at, err := k.InspectOnline(ctx)
	if err != nil {
		return rotation.Forecast{}, err
	}
	plan, err := rotation.New(at.Cfg.Config, at.Tools)
	if err != nil {
		return rotation.Forecast{}, &usage.Error{Err: err}
	}
	return examineRotation(ctx, plan)
}
