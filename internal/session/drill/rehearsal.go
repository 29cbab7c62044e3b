package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// RehearsalReport is what the rehearsal of a change found out, in `bootstrap upgrade --rehearse FILE --output json` and
// `bootstrap apply --rehearse FILE --output json`.
type RehearsalReport struct {
	Kind        string               `json:"kind"`   // "rehearsal", to tell it from events
	Change      string               `json:"change"` // "upgrade" or "apply"
	Cluster     string               `json:"cluster"`
	Began       time.Time            `json:"began"`
	Passed      bool                 `json:"passed"`
	Parts       []Part               `json:"parts"`
	Changed     []string             `json:"changed,omitempty"` // what of the configuration, other than versions
	Stages      []Part               `json:"stages"`            // steps of the change
	API         upgrade.Availability `json:"api"`               // while it was made
	Comparisons []Comparison         `json:"comparisons"`
}

// Change is what a rehearsal has done to the restored cluster.
type Change func(context.Context, *session.Session) (operations.UpgradeResult, error)

// Upgrade upgrades the cluster to the versions of the configuration.
func Upgrade(o operations.UpgradeOptions) Change {
	return func(ctx context.Context, s *session.Session) (operations.UpgradeResult, error) {
		return operations.Upgrade(ctx, s, o, session.Questions{})
	}
}

// Apply brings the cluster to the configuration.
func Apply(o operations.ApplyOptions) Change {
	return func(ctx context.Context, s *session.Session) (operations.UpgradeResult, error) {
		return applied(ctx, s, o)
	}
}

func applied(ctx context.Context, s *session.Session, o operations.ApplyOptions) (r operations.UpgradeResult,
	err error) {
	b, err := s.Plan()
	if err != nil {
		return r, err
	}
	switch manages, err := b.Plan.PivotPassed(ctx, s.Journal()); {
	case err != nil:
		return r, err
	case !manages:
		return r, usage.Errorf("the cluster of the backup does not manage itself: a run of the bootstrap applies its " +
			"manifests, and \"plan\" says what that changes")
	}
	return operations.Apply(ctx, s, b, o, session.Questions{})
}

// Rehearse restores a backup in a lab of its own, changes the cluster there to what a configuration has, and compares
// it with the backup. name is "upgrade" or "apply". The configuration of k has the versions that the backup is restored
// with.
func Rehearse(ctx context.Context, k session.Cluster, to settings.Configuration, o Options, name string,
	change Change) (r RehearsalReport, err error) {
	d, err := newRun(k, o)
	if err != nil {
		return r, err
	}
	d.report.Kind, d.parts = "rehearsal", 3
	defer func() { err = d.end(ctx, r.Passed, err) }()
	r.Kind, r.Change, r.Cluster = d.report.Kind, name, o.Backup.Source.Contents.Header.Cluster
	r.Began = d.report.Began
	defer func() { r.Parts = d.report.Parts }()
	if err := d.restoreGiven(ctx); err != nil {
		return r, err
	}
	if o.State != "" {
		d.takeApplied(ctx)
	}
	if err := d.part(ctx, name, "with every check of a real one", func(ctx context.Context) error {
		d.cluster.Cfg = to
		return d.change(ctx, name, change, &r)
	}); err != nil {
		return r, err
	}
	err = d.part(ctx, "compare", "with what the backup says", func(ctx context.Context) (err error) {
		r.Comparisons, err = d.compareBackup(ctx, o.Backup.Source)
		return err
	})
	r.Passed = err == nil && allSame(r.Comparisons)
	return r, err
}

// takeApplied takes what was applied last from the cluster's state folder.
func (d *run) takeApplied(ctx context.Context) {
	known, err := changes.CopyApplied(ctx, d.state.Files(), d.options.State.Files())
	if err == nil && !known {
		err = fmt.Errorf("%s does not have it", d.options.State)
	}
	if err != nil {
		d.cluster.Caller.Note("what was applied last is not known: %v; all that is written in the configuration and "+
			"the files counts as changed", err)
	}
}

// change changes the cluster in the rehearsal's lab.
func (d *run) change(ctx context.Context, name string, change Change, r *RehearsalReport) error {
	var ends stepEnds
	var result operations.UpgradeResult
	err := d.operate(ctx, name, &ends, func(ctx context.Context, s *session.Session) (err error) {
		result, err = change(ctx, s)
		return err
	})
	r.API, r.Changed = result.API, result.Configuration
	for _, e := range ends.of(result.Report) {
		r.Stages = append(r.Stages, Part{Name: e.Step, Elapsed: e.Elapsed})
	}
	if scaled := result.Scale; scaled != nil && err == nil {
		r.Changed = append(r.Changed, fmt.Sprintf("control plane servers: %d", scaled.Servers))
		r.Stages = append(r.Stages, Part{Name: "scale", Elapsed: scaled.Took})
	}
	return err
}
