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
	Offline string
	// Existing describes a cluster of this name that the state folder did not create, and Unfinished the operations that
	// were begun and have not ended: Run refuses to begin, or resumes them. Empty: there are none.
	Existing   string
	Unfinished []string

	Consequences []string // what becomes of the cluster that exists, a sentence each
	NeedsConsent bool     // some of the consequences need Options.Yes
	Refused      bool     // some of them cannot be done: the run would fail
	// Unforeseen tells why the consequences are not known: the three fields above say nothing then. Empty: they are known.
	Unforeseen string
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

// Plan returns what Run with these targets would do, and why: Bootstrap if none is given. It does not know steps that a
// program adds or replaces. It changes nothing, and starts no lab. While no session is open, the loggers of Kubernetes'
// libraries, which belong to the process, discard what they get from then on, also after Doctor and Status.
func Plan(ctx context.Context, cfg config.Config, o Options, targets ...string) (f Forecast, err error) {
	err = inspect(cfg, o, targets, func(k session.Cluster) (err error) {
		f.forecast, err = operations.Plan(ctx, k)
		return err
	})
	is := f.forecast
	f.Unforeseen = is.Unforeseen
	if is.Existing != nil {
		f.Existing = is.Existing.Sentence
	}
	for _, o := range is.Begun {
		f.Unfinished = append(f.Unfinished, o.Sentence)
	}
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
	// Waiting tells what the cluster waits for, and why. Empty: nothing is missing, as far as Offline, Existing and
	// Unknown are empty, too.
	Waiting string
	// Offline tells why Hetzner and the clusters were not asked; then only the journal is known. Empty: they were.
	Offline string
	// Existing describes a cluster of this name that the state folder did not create. Empty: there is none.
	Existing string
	// Unknown names what could not be asked, and why.
	Unknown []string
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

// Status reads the journal, and asks Hetzner, the management cluster, the cluster and the Talos of its servers. A
// source that does not answer within two seconds is listed in Unknown; that is not an error. It changes nothing.
func Status(ctx context.Context, cfg config.Config, o Options) (s ClusterStatus, err error) {
	err = inspect(cfg, o, nil, func(k session.Cluster) (err error) {
		s.report, err = operations.Status(ctx, k)
		return err
	})
	s.Offline = s.report.Offline
	if s.report.Existing != nil {
		s.Existing = s.report.Existing.Sentence
	}
	if now := s.report.Now; now != nil {
		s.Waiting = now.Sentence
		for _, u := range now.Unknown {
			s.Unknown = append(s.Unknown, u.What+": "+u.Why)
		}
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
