package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// DestroyOptions are what a deletion takes besides the cluster.
type DestroyOptions struct {
	destroy.Options
	// Show gets what is deleted and what stays, before anything is. Optional. Its error ends the operation.
	Show func(destroy.Deletion) error
}

// Destroy deletes the cluster and everything that was created for it, and makes the state folder free for another one.
func Destroy(ctx context.Context, s *session.Session, o DestroyOptions, ask session.Questions) error {
	destroyer := destroy.New(s.Cfg.Config, s.Tools)
	plan, err := destroyer.Plan(ctx, o.Options)
	if err != nil {
		return err
	}
	if o.Show != nil {
		if err := o.Show(plan); err != nil {
			return err
		}
	}
	if err := s.OfferBackup(ctx, ask, "what destroy deletes is gone for good"); err != nil {
		return err
	}
	if err := s.Confirm(ctx, ask, "destroy asks for the cluster's name", fmt.Sprintf(
		"Type the cluster's name (%s) to delete all this for good: ", plan.Cluster), plan.Cluster); err != nil {
		return err
	}
	if err := destroyer.Destroy(ctx, plan, s.Hub.Task); err != nil {
		return fmt.Errorf("%w\nonce the cause is removed, the same command resumes; log: %s", err, s.Files.Log.Name())
	}
	if err := errors.Join(upgrade.End(s.Tools.Files), scale.Forget(s.Tools.Files),
		changes.ForgetApplied(s.Tools.Files)); err != nil {
		return fmt.Errorf("remove the records of what was begun on the cluster: %w", err)
	}
	record, err := retire(s)
	if err != nil {
		return err
	}
	if err := ownership.Remove(s.Tools.Files); err != nil {
		return fmt.Errorf("make the state folder free for another cluster: %w", err)
	}
	s.Hub.Note("cluster %s is gone%s", plan.Cluster, record)
	return nil
}

// retire moves the journal of a destroyed cluster away, and records that.
func retire(s *session.Session) (record string, err error) {
	err = s.Effects.Do(context.Background(), effect.File, statedir.VerbRetire, statedir.JournalFile, func() error {
		record, err = s.Folder.Retire(s.Began)
		return err
	})
	return record, err
}
