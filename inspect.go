package slipway

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// Forecast is what a run would do. As JSON it is the output of the command plan with --output json (docs/reference.md).
type Forecast struct {
	Steps []PlannedStep
	// Offline tells why Hetzner and the clusters were not asked; then only the journal is known. Empty: they were.
	Offline      string
	Consequences []string // what becomes of the cluster that exists, a sentence each
	NeedsConsent bool     // some of the consequences need Options.Yes
	Refused      bool     // some of them cannot be done: the run would fail
	// Expected is how long the run takes if nothing delays it.
	Expected time.Duration

	forecast forecast.Forecast
}

// PlannedStep is what a run would do with a step.
type PlannedStep struct {
	Name   string
	Action flow.Action
	Why    string
}

// Print writes the forecast as the command prints it, in lines of a width; 0: lines are not wrapped.
func (f Forecast) Print(w io.Writer, width int) error { return f.forecast.Print(w, width) }

// MarshalJSON returns the output of the command plan with --output json.
func (f Forecast) MarshalJSON() ([]byte, error) { return json.Marshal(f.forecast) }

// Plan returns what Run with these targets would do, and why: Bootstrap if none is given. It changes nothing, and
// starts no lab.
func Plan(ctx context.Context, cfg config.Config, o Options, targets ...string) (f Forecast, err error) {
	err = inspect(cfg, o, targets, func(k session.Cluster) (err error) {
		f.forecast, err = operations.Plan(ctx, k)
		return err
	})
	is := f.forecast
	f.Offline, f.NeedsConsent, f.Refused, f.Expected = is.Offline, is.NeedsConsent, is.Refused, is.Expected
	for _, s := range is.Steps {
		f.Steps = append(f.Steps, PlannedStep{Name: s.Step, Action: s.Would, Why: s.Why})
	}
	for _, c := range is.Consequences {
		f.Consequences = append(f.Consequences, c.String())
	}
	return f, err
}

// Check is a check of the doctor, and its result.
type Check struct {
	Name    string
	Verdict string // "ok", "failed", or "unknown" where something did not answer
	Reason  string
	Remedy  string // what to do where it failed; may be empty
}

// Doctor checks whether a bootstrap would succeed: token, project, names, address ranges, versions, files, sources. It
// changes nothing. Where checks fail, the error is that with which Run would refuse to begin.
func Doctor(ctx context.Context, cfg config.Config, o Options) (checks []Check, err error) {
	err = inspect(cfg, o, nil, func(k session.Cluster) error {
		e, err := operations.Examine(ctx, k)
		if err != nil {
			return err
		}
		for _, f := range e.Checks {
			checks = append(checks, Check{Name: f.Check, Verdict: string(f.Verdict), Reason: f.Reason, Remedy: f.WayOut})
		}
		return e.Err()
	})
	return checks, err
}

// ClusterStatus is the state of a cluster. As JSON it is the output of the command status with --output json
// (docs/reference.md).
type ClusterStatus struct {
	// Waiting tells what the cluster waits for, and why. Empty: nothing is missing, or Offline is not empty.
	Waiting string
	// Offline tells why Hetzner and the clusters were not asked; then only the journal is known. Empty: they were.
	Offline string
	Steps   []StepStatus

	report status.Report
}

// StepStatus is what the journal has of a step, and what its verification has found.
type StepStatus struct {
	Name     string
	State    string // "never", "started", "done", "failed" or "interrupted"
	Verified string // "holds", "gone" or "unknown"; empty: it was not verified
	Remarks  string
}

// Print writes the status as the command prints it, in lines of a width; 0: lines are not wrapped.
func (s ClusterStatus) Print(w io.Writer, width int) error { return s.report.Print(w, width) }

// MarshalJSON returns the output of the command status with --output json.
func (s ClusterStatus) MarshalJSON() ([]byte, error) { return json.Marshal(s.report) }

// Status reads the journal, and asks Hetzner, the management cluster, the cluster and the Talos of its servers. Who does
// not answer within two seconds is named in the status, and is no error. It changes nothing.
func Status(ctx context.Context, cfg config.Config, o Options) (s ClusterStatus, err error) {
	err = inspect(cfg, o, nil, func(k session.Cluster) (err error) {
		s.report, err = operations.Status(ctx, k)
		return err
	})
	s.Offline = s.report.Offline
	if s.report.Now != nil {
		s.Waiting = s.report.Now.Sentence
	}
	for _, step := range s.report.Steps {
		s.Steps = append(s.Steps, StepStatus{Name: step.Step, State: step.State, Verified: step.Verified,
			Remarks: step.Remarks()})
	}
	return s, err
}

// inspect has a cluster read, without a session. Its error has no secrets.
func inspect(cfg config.Config, o Options, targets []string, read func(session.Cluster) error) error {
	k, err := cluster(cfg, o)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		targets = []string{Bootstrap}
	}
	k.Targets = targets
	return redacted(k.Caller.Hide, read(k))
}
