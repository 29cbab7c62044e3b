package operations

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/readopt"
	"github.com/slipway-k8s/slipway/internal/session"
)

// ReadoptOptions name the backup, and what of its differences from the cluster is accepted.
type ReadoptOptions struct {
	Source backup.Cluster
	Accept []string // IDs of differences
	// Show gets what was found, before differences that are not accepted are refused. Its error ends the operation.
	// Optional.
	Show func(readopt.Readoption) error
}

// PlanReadopt compares the backup with what lives, shows what was found, and refuses differences that are not accepted.
// It changes nothing. hub shows the comparison.
func PlanReadopt(ctx context.Context, k session.Cluster, o ReadoptOptions, hub func() *session.Hub) error {
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return err
	}
	if err := records.RoomForReadopt(at.Folder.Files(), o.Source); err != nil {
		return err
	}
	if at.Offline != "" {
		return usage.Errorf("%s: there is nothing to compare the backup with", at.Offline)
	}
	plan, err := readopt.New(at.Cfg.Config, at.Tools, o.Source, o.Accept)
	if err != nil {
		return &usage.Error{Err: err}
	}
	h := hub()
	defer h.Close()
	_, err = lookForReadopt(ctx, h, plan, o)
	return err
}

// lookForReadopt compares the backup with what lives, and refuses differences that are not accepted.
func lookForReadopt(ctx context.Context, h *session.Hub, plan *readopt.Plan, o ReadoptOptions) (found readopt.Readoption,
	err error) {
	err = h.Task("look", "the cluster exists, no cluster manages it, and the backup is compared with it",
		func(say flow.Say) (err error) {
			found, err = plan.Inspect(ctx, say)
			return err
		})
	if err == nil && o.Show != nil {
		err = o.Show(found)
	}
	if err == nil {
		err = found.Refuse(o.Accept)
	}
	return found, err
}

// Readopt gives a cluster whose servers live the management back that it lost. It asks once, unless an earlier run was
// agreed to.
func Readopt(ctx context.Context, s *session.Session, o ReadoptOptions,
	ask session.Questions) (plan *readopt.Plan, result session.Result, err error) {
	if err := s.RefuseTakenOver(ctx); err != nil {
		return nil, result, err
	}
	if err := records.RoomForReadopt(s.Tools.Files, o.Source); err != nil {
		return nil, result, err
	}
	if plan, err = readopt.New(s.Cfg.Config, s.Tools, o.Source, o.Accept); err != nil {
		return nil, result, &usage.Error{Err: err}
	}
	found, err := lookForReadopt(ctx, s.Hub, plan, o)
	if err != nil {
		return plan, result, err
	}
	if !found.Released && !found.Underway {
		err := s.Confirm(ctx, ask, "readopt asks before it changes anything", fmt.Sprintf(
			"Type the cluster's name (%s) to have it managed again like this: ", found.Cluster), found.Cluster)
		if err != nil {
			return plan, result, err
		}
	}
	if err := s.ExamineToken(ctx); err != nil {
		return plan, result, err
	}
	if err := records.PrepareReadopt(s.Tools.Files, o.Source); err != nil {
		return plan, result, err
	}
	result, err = runRecovery(ctx, s, plan.Graph, plan.All, records.ReadoptFiles(s.Tools.Files), records.EndReadopt)
	return plan, result, err
}
