package operations

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/session"
)

// Examination is what Examine has found: `doctor --output json`.
type Examination struct {
	Kind   string              `json:"kind"` // "doctor"
	Checks []doctor.Finding    `json:"checks"`
	Failed int                 `json:"failed"` // how many checks
	Files  []render.SourceFile `json:"files"`  // that the cluster is made from
}

// Err is nil if no check has failed.
func (e Examination) Err() error { return session.FailedChecks(e.Checks) }

// Examine checks what a run would meet. It changes nothing.
func Examine(ctx context.Context, k session.Cluster) (e Examination, err error) {
	k.NoteLiterals()
	if err := k.CheckRepository(); err != nil {
		return e, err
	}
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return e, err
	}
	if k.Lab && at.Offline != "" {
		return e, usage.Errorf("%s: start it first", at.Offline)
	}
	b, err := planning.New(at.Cfg.Config, at.Tools)
	if err != nil {
		return e, &usage.Error{Err: err}
	}
	examiner, err := session.Doctor(ctx, b, at.Folder)
	if err != nil {
		return e, err
	}
	e.Kind = "doctor"
	if e.Files, err = render.SourceFiles(at.Cfg.Overrides); err != nil {
		return e, &usage.Error{Err: err}
	}
	e.Checks = session.WithoutSecrets(k.Caller.Hide, examiner.Examine(ctx))
	e.Failed = doctor.Count(e.Checks, doctor.Failed)
	return e, nil
}
