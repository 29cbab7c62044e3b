// Package status reads the state of a cluster from all sources at once, and reports it beside what the journal records,
// for people and programs.
package status

import (
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
)

// Step is a step in `bootstrap status --output json`.
type Step struct {
	Step     string    `json:"step"`
	Doc      string    `json:"doc,omitempty"`
	State    string    `json:"state"` // never, started, done, failed or interrupted
	Attempt  int       `json:"attempt,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Verified string    `json:"world,omitempty"`  // holds, gone or unknown; empty: not asked
	Reason   string    `json:"reason,omitempty"` // why it is gone or unknown
	Changed  []string  `json:"changed,omitempty"`
	After    []string  `json:"after,omitempty"` // steps that would run again, or may, and whose output this one takes
	Sealed   string    `json:"sealed,omitempty"`
	Said     string    `json:"said,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Report is `bootstrap status --output json`.
type Report struct {
	State   string                 `json:"state"`
	Offline string                 `json:"offline,omitempty"` // why Hetzner and the clusters were not asked
	Begun   []unfinished.Operation `json:"begun,omitempty"`   // operations that have not ended
	// Existing is what is known of a cluster of this name that the state folder did not create.
	Existing *claims.ExistingCluster `json:"existing,omitempty"`
	Now      *Overview               `json:"now,omitempty"` // nil: Hetzner and the clusters were not asked
	Steps    []Step                  `json:"steps"`
	Notes    []string                `json:"notes"`
	forecast.Comparison
}

// TellRun says of a pivot that has not ended whether a run is at work on it; empty: none is.
func (r *Report) TellRun(run string) {
	switch p := r.Now.Pivot; {
	case p == nil:
	case run != "":
		p.Sentence, p.Command = p.Sentence+"; a run is at work on it ("+run+")", ""
	default:
		p.Sentence += "; it was interrupted, and running pivot, or all, again resumes it"
	}
}

// WithoutSecrets hides them in what others said.
func (r *Report) WithoutSecrets(hide *redact.Redactor) {
	hide.Each(&r.Offline)
	if r.Existing != nil {
		hide.Each(&r.Existing.Sentence)
	}
	for i := range r.Begun {
		hide.Each(&r.Begun[i].Sentence)
	}
	r.Comparison.WithoutSecrets(hide)
	for i := range r.Steps {
		s := &r.Steps[i]
		hide.Each(&s.Reason, &s.Error, &s.Said)
	}
	for i := range r.Notes {
		hide.Each(&r.Notes[i])
	}
	if r.Now == nil {
		return
	}
	hide.Each(&r.Now.Sentence, &r.Now.Waiting.Missing)
	if r.Now.Lost != nil {
		hide.Each(&r.Now.Lost.Sentence)
	}
	if r.Now.Pivot != nil {
		hide.Each(&r.Now.Pivot.Sentence, &r.Now.Pivot.Management, &r.Now.Pivot.Cluster)
	}
	for i := range r.Now.Waiting.Findings {
		hide.Each(&r.Now.Waiting.Findings[i].What, &r.Now.Waiting.Findings[i].Do)
	}
	for i := range r.Now.Servers {
		hide.Each(&r.Now.Servers[i].Talos)
	}
	for i := range r.Now.Unknown {
		hide.Each(&r.Now.Unknown[i].Why)
	}
}

// Add adds the steps.
func (r *Report) Add(all []flow.Status) {
	r.Steps = []Step{}
	for _, s := range all {
		r.Steps = append(r.Steps, NewStep(s))
	}
}

// NewStep describes a step for people and programs.
func NewStep(s flow.Status) Step {
	row := Step{
		Step: s.Name, Doc: s.Doc, State: string(s.State), Attempt: s.Attempt, Started: s.Started, Ended: s.Ended,
		Changed: s.Changed, After: s.After, Sealed: s.Sealed, Said: s.Said, Error: s.Error,
	}
	if s.State == "" {
		row.State = "never"
	}
	if s.Asked {
		row.Verified, row.Reason = string(s.Verdict.Answer()), s.Verdict.Reason()
		if err := s.Verdict.Err(); err != nil {
			row.Reason = err.Error()
		}
	}
	return row
}

// verified is what the verification has found, in a word.
func (r Step) verified() string {
	switch {
	case r.Sealed != "":
		return "sealed"
	case r.Verified == string(flow.AnswerUnknown):
		return "could not ask"
	case r.Verified == "":
		return "-"
	}
	return r.Verified
}

// settled tells that there is nothing to say of a step but that it is done.
func (r Step) settled() bool {
	return r.State == string(flow.StateDone) &&
		(r.Sealed != "" || (r.Verified == "" || r.Verified == string(flow.AnswerHolds)) && r.Remarks() == "")
}

// Remarks is what there is to say about a step besides its state.
func (r Step) Remarks() string {
	switch {
	case r.Sealed != "":
		return "lies before " + r.Sealed + ", a point of no return"
	case r.Reason != "":
		return r.Reason
	case r.Error != "":
		return r.Error
	case len(r.Changed) > 0:
		return "would run again, changed: " + strings.Join(r.Changed, ", ")
	case len(r.After) > 0:
		return "runs again if " + strings.Join(r.After, " or ") + " comes out differently"
	case r.State != string(flow.StateDone):
		return r.Said
	}
	return ""
}
