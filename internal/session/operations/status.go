package operations

import (
	"context"
	"sync"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// Status reads the journal and asks Hetzner and the clusters, everything at once. It changes nothing.
func Status(ctx context.Context, k session.Cluster) (status.Report, error) {
	state, err := k.State(ctx)
	if err != nil {
		return status.Report{}, err
	}
	at, err := k.Inspect(ctx, state)
	if err != nil {
		return status.Report{}, err
	}
	hide := k.Caller.Hide
	b, err := planning.New(at.Cfg.Config, at.Tools)
	if err != nil {
		return status.Report{}, &usage.Error{Err: err}
	}
	r := status.Report{State: string(state), Offline: at.Offline, Notes: []string{}}
	run := statedir.AtWork(state)
	r.Begun = unfinished.In(ctx, b.Tools, b.Cfg.ClusterName, run)
	recorded, err := b.Plan.Graph.Recorded(ctx, state.Journal())
	if at.Offline != "" || err != nil {
		r.Add(recorded)
		r.WithoutSecrets(hide)
		return r, err
	}
	if r.Existing, err = existingFor(ctx, at, b); err != nil {
		return r, err
	}
	look := status.Begin(ctx, b.Cfg, b.Tools, b.Sources, lookedFrom(b.Plan, recorded, r.Begun))
	defer look.Close()
	var asking sync.WaitGroup
	asking.Go(func() {
		now := look.Overview()
		r.Now = &now
	})
	asking.Go(func() { r.Comparison = forecast.Compare(look.Context(), b, state.Journal(), at.Cfg, nil, r.Begun) })
	var notesErr error
	asking.Go(func() { r.Notes, notesErr = look.Notes() })
	all, err := b.Plan.Graph.CheckUntil(ctx, look.Context(), state.Journal())
	asking.Wait()
	r.Add(all)
	r.TellRun(run)
	// There is a cluster, which this folder does not know.
	if r.Existing != nil && r.Now.Waiting.For == status.NoManagement {
		r.Now.Waiting, r.Now.Sentence = why.Answer{}, ""
	}
	if r.Notes = append([]string{}, r.Notes...); notesErr != nil {
		r.Notes = append(r.Notes, "what is at Hetzner is not known: "+notesErr.Error())
	}
	r.WithoutSecrets(hide)
	return r, err
}

// existingFor is session.Cluster.Existing; in a folder in which nothing was begun, which has no client of Hetzner, with
// the token.
func existingFor(ctx context.Context, at session.Inspection, b planning.Bootstrap) (*claims.ExistingCluster, error) {
	tools := b.Tools
	if tools.Hetzner == nil {
		at.Tools = tools
		asked, err := at.WithHetzner(ctx)
		if err != nil && context.Cause(ctx) == nil {
			return nil, nil // status shows what the folder has, also without a token
		}
		tools = asked.Tools
	}
	return at.Existing(ctx, tools)
}

// lookedFrom is what the journal has of the steps that a look needs to know of, and which of the operations that have
// not ended pauses the cluster.
func lookedFrom(plan *steps.Plan, recorded []flow.Status, unended []unfinished.Operation) (out status.Recorded) {
	for _, o := range unended {
		if o.Pauses() {
			out.Pauses = o.Operation
		}
	}
	for _, s := range recorded {
		switch s.Name {
		case plan.ControlPlane.Name():
			out.APIAnswered = s.State == flow.StateDone || s.Sealed != ""
		case plan.Pivot.Name():
			out.Pivot = s.State
		}
	}
	return out
}
