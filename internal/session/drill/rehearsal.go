package drill

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// UpgradeReport is what the rehearsal of an upgrade found out, in `bootstrap upgrade --rehearse FILE --output json`.
type UpgradeReport struct {
	Kind        string               `json:"kind"` // "rehearsal", to tell it from events
	Cluster     string               `json:"cluster"`
	Began       time.Time            `json:"began"`
	Passed      bool                 `json:"passed"`
	Parts       []Part               `json:"parts"`
	Stages      []Part               `json:"stages"` // steps of the upgrade
	API         upgrade.Availability `json:"api"`    // while it was upgraded
	Comparisons []Comparison         `json:"comparisons"`
}

// RehearseUpgrade restores a backup in a lab of its own, upgrades it to the versions of a configuration there, and
// compares it with the backup. The configuration of k has the versions that the backup is restored with.
func RehearseUpgrade(ctx context.Context, k session.Cluster, to settings.Configuration, o Options,
	u operations.UpgradeOptions) (r UpgradeReport, err error) {
	d, err := newRun(k, o)
	if err != nil {
		return r, err
	}
	d.report.Kind, d.parts = "rehearsal", 3
	defer func() { err = d.end(ctx, r.Passed, err) }()
	r.Kind, r.Cluster, r.Began = d.report.Kind, o.Backup.Source.Contents.Header.Cluster, d.report.Began
	defer func() { r.Parts = d.report.Parts }()
	if err := d.restoreGiven(ctx); err != nil {
		return r, err
	}
	if err := d.part(ctx, "upgrade", "with every check of a real one", func(ctx context.Context) error {
		d.cluster.Cfg = to
		return d.upgrade(ctx, u, &r)
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

// upgrade upgrades the cluster in the rehearsal's lab.
func (d *run) upgrade(ctx context.Context, u operations.UpgradeOptions, r *UpgradeReport) error {
	var ends stepEnds
	var result operations.UpgradeResult
	err := d.operate(ctx, "upgrade", &ends, func(ctx context.Context, s *session.Session) (err error) {
		result, err = operations.Upgrade(ctx, s, u, session.Questions{})
		return err
	})
	r.API = result.API
	if err != nil {
		return err
	}
	for _, e := range ends.of(result.Report) {
		r.Stages = append(r.Stages, Part{Name: e.Step, Elapsed: e.Elapsed})
	}
	return nil
}
