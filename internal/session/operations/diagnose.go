package operations

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// Diagnosis is a recovery.Diagnosis with the command that mends it.
type Diagnosis struct {
	Kind string `json:"kind"`
	recovery.Diagnosis
	Command string                `json:"command,omitempty"` // Target, as it is typed
	Takes   *runs.ForecastOfSteps `json:"takes,omitempty"`
}

// Diagnose finds out which recovery a cluster needs, and its command. It changes nothing. source is
// what was read from the backup in file; nil: none is named.
func Diagnose(ctx context.Context, k session.Cluster, source *backup.Cluster, file string) (d Diagnosis, err error) {
	if source != nil {
		if _, err := restore.New(k.Cfg.Config, session.OfflineTools(k.Cfg), *source); err != nil {
			return d, &usage.Error{Err: err}
		}
	}
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return d, err
	}
	if at.Offline != "" {
		return d, errors.New(at.Offline)
	}
	found, err := recovery.Diagnose(ctx, at.Cfg.Config, at.Tools, source, file)
	if err != nil {
		return d, err
	}
	took := runs.ReadDurations(at.Folder, at.Environment())
	d = Diagnosis{Kind: "diagnosis", Diagnosis: found, Takes: took.Forecast(found.Steps)}
	if len(found.Target) > 0 {
		d.Command = k.Caller.Command(found.Target...)
	}
	for i, line := range d.Seen {
		d.Seen[i] = text.Printable(k.Caller.Hide.Text(line))
	}
	d.Sentence = text.Printable(k.Caller.Hide.Text(d.Sentence))
	return d, nil
}
