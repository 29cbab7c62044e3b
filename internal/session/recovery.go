package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/quorum"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// RunGraph runs the graph of an operation that has a journal of its own, in a folder of the state folder. Where it
// fails it says that what is done is kept.
func (s *Session) RunGraph(ctx context.Context, graph *flow.Graph, folder platform.Files,
	targets []string) (Result, error) {
	result, err := s.TryGraph(ctx, graph, folder, targets)
	if err != nil && !errors.Is(err, flow.ErrInterrupted) && !errors.Is(err, quorum.ErrQuorum) {
		err = s.resumable(err)
	}
	return result, err
}

// TryGraph is RunGraph for a caller that removes the folder where the graph fails.
func (s *Session) TryGraph(ctx context.Context, graph *flow.Graph, folder platform.Files,
	targets []string) (Result, error) {
	journal := redact.Journal{Journal: statedir.NewFolderJournal(folder.String(), s.Effects), Hide: s.Caller.Hide}
	report, err := graph.Run(ctx, flow.Options{
		Journal: journal, Run: s.ID, Targets: targets, Parallel: s.Parallel, Observe: s.Hub.Observe,
		Passing: kube.Unwell,
	})
	return Result{Journal: journal, Report: report}, err
}

// CheckProject refuses a token of another Hetzner project than the one that the folder's cluster is in, and a folder
// whose cluster another one has taken over.
func (s *Session) CheckProject(ctx context.Context) error {
	err := claims.CheckProject(ctx, s.Cfg.Config, s.Tools)
	other, went := (*claims.OtherProjectError)(nil), (*claims.TakenOverError)(nil)
	if errors.As(err, &other) || errors.As(err, &went) {
		return &usage.Error{Err: err}
	}
	if err != nil && errors.Is(errors.Join(err, context.Cause(ctx)), flow.ErrInterrupted) {
		return fmt.Errorf("find out whether the token is of the cluster's project: %w", err)
	}
	return err
}

// RefuseOperation refuses an operation on a cluster that is being recovered, or is in another project.
func (s *Session) RefuseOperation(ctx context.Context) error {
	if err := s.RefuseDuringRecovery(); err != nil {
		return err
	}
	return s.CheckProject(ctx)
}

// RefuseTakenOver refuses a recovery of a cluster that another state folder has taken over: its last step would fail.
func (s *Session) RefuseTakenOver(ctx context.Context) error {
	err := claims.CheckProject(ctx, s.Cfg.Config, s.Tools)
	if went := (*claims.TakenOverError)(nil); errors.As(err, &went) {
		return &usage.Error{Err: err}
	}
	return nil // other errors: the first step of the recovery asks Hetzner again, and reports them
}

// RefuseDuringRecovery keeps the session out of a folder whose cluster is being recovered, restored or readopted, or
// gets new certificate authorities.
func (s *Session) RefuseDuringRecovery() error { return RefuseDuringRecovery(s.Caller, s.Folder) }

// RefuseDuringRecovery keeps other runs out of a folder whose cluster is being recovered, restored or readopted, or
// gets new certificate authorities.
func RefuseDuringRecovery(c *Caller, state statedir.Dir) error {
	if err := RefuseDuringQuorum(c, state); err != nil {
		return err
	}
	record, err := records.ReadRotation(state.Files())
	if err != nil || record == nil {
		return err
	}
	return usage.Errorf("the cluster in %s gets new certificate authorities (begun %s): run rotate ca to its end "+
		"first: %s", state, record.Began.Format(time.RFC3339), c.Command("rotate", "ca"))
}

// RefuseDuringQuorum keeps other runs out of a folder whose cluster is being recovered, restored or readopted.
func RefuseDuringQuorum(c *Caller, state statedir.Dir) error {
	if err := RefuseDuringRestore(c, state); err != nil {
		return err
	}
	record, err := records.ReadQuorum(state.Files())
	if err != nil || record == nil {
		return err
	}
	return usage.Errorf("the etcd of the cluster in %s is being recovered (begun %s): run recover-quorum to its end "+
		"first: %s",
		state, record.Began.Format(time.RFC3339), c.Command("recover-quorum"))
}

// RefuseDuringRestore keeps other runs out of a folder whose cluster is being restored or readopted. During a restore,
// a bootstrap would start a new, empty etcd. During a readoption, it would unpause the objects that are being compared.
func RefuseDuringRestore(c *Caller, state statedir.Dir) error {
	record, err := records.ReadRestore(state.Files())
	if err != nil {
		return err
	}
	if record != nil && record.Ended.IsZero() {
		return usage.Errorf("the cluster in %s is being restored (begun %s): run restore with the same file to its end "+
			"(%s), or destroy what it made, and the load balancer with it, "+
			"unless that is protected against deletion at Hetzner (%s)",
			state, record.Began.Format(time.RFC3339), c.Command("restore", "FILE"), c.Command("destroy"))
	}
	readopting, err := records.ReadReadopt(state.Files())
	if err != nil || readopting == nil || !readopting.Ended.IsZero() {
		return err
	}
	return usage.Errorf("the cluster in %s is being readopted (begun %s): run readopt with the same file to its end: %s",
		state, readopting.Began.Format(time.RFC3339), c.Command("readopt", "FILE"))
}

// lockedJournal calls first once the journal is locked, before the run reads or writes it. If that fails, so does Lock.
type lockedJournal struct {
	flow.Journal
	first func(context.Context) error
}

// Lock implements flow.Journal.
func (j lockedJournal) Lock(ctx context.Context) (func() error, error) {
	unlock, err := j.Journal.Lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.first(ctx); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// Append implements flow.Appender.
func (j lockedJournal) Append(ctx context.Context, change flow.Snapshot) error {
	return flow.Append(ctx, j.Journal, change)
}
