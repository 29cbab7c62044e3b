package drill

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// Report is what a drill found out, in `bootstrap drill --output json`.
type Report struct {
	Kind        string       `json:"kind"` // "drill", to tell it from events
	Cluster     string       `json:"cluster"`
	Began       time.Time    `json:"began"`
	Passed      bool         `json:"passed"`
	Parts       []Part       `json:"parts"`
	Comparisons []Comparison `json:"comparisons"`

	RTO       time.Duration `json:"rtoNs"` // from the loss to the whole cluster
	Steps     []Step        `json:"steps"` // of the restore, in the order of their ends
	Bootstrap time.Duration `json:"bootstrapNs,omitempty"`
	Ratio     float64       `json:"ratio,omitempty"` // RTO / Bootstrap
	RPO       Loss          `json:"rpo"`
	Seed      uint64        `json:"seed,omitempty"` // of the faults
	Faults    []Fault       `json:"faults,omitempty"`
	Attempts  int           `json:"attempts"` // of the restore
}

// Part is one part of a drill.
type Part struct {
	Name    string        `json:"name"`
	Elapsed time.Duration `json:"elapsedNs"`
}

// Step is a step of the restore.
type Step struct {
	Step    string        `json:"step"`
	Elapsed time.Duration `json:"elapsedNs"`
	After   time.Duration `json:"afterNs"` // the loss, when it was done
}

// Loss is what a user has lost.
type Loss struct {
	Time    time.Duration `json:"ns"`                // between the last write that is there and the loss
	Written int           `json:"written,omitempty"` // by the user
	Gone    int           `json:"gone,omitempty"`    // of these
}

// Fault is a fault that was in force during the restore.
type Fault struct {
	Fault string `json:"fault"`
	Spent bool   `json:"spent"` // it had ended by itself
	Hits  int    `json:"hits"`  // of one that had not
	id    int64
}

// String says how often the fault has hit.
func (f Fault) String() string {
	if f.Spent {
		return "it has come about and is over"
	}
	return fmt.Sprintf("%d hits", f.Hits)
}

// recover adds the steps of the restore.
func (r *Report) recover(lost time.Time, ends []flow.Event, end time.Time) {
	r.RTO = end.Sub(lost)
	for _, e := range ends {
		r.Steps = append(r.Steps, Step{Step: e.Step, Elapsed: e.Elapsed, After: e.Time.Sub(lost)})
	}
	if r.Bootstrap > 0 {
		r.Ratio = r.RTO.Seconds() / r.Bootstrap.Seconds()
	}
}

// lose adds what the user lost. Nothing that was written before a write that is there may be gone.
func (r *Report) lose(lost time.Time, written, surviving []Write) {
	r.RPO = Loss{Written: len(written), Gone: len(written) - len(surviving)}
	if len(written) == 0 {
		return
	}
	last := written[0].At
	if len(surviving) > 0 {
		last = surviving[len(surviving)-1].At
	}
	r.RPO.Time = lost.Sub(last)
	hole := Comparison{What: "what was written up to the snapshot is there, and nothing since",
		Same: slices.Equal(surviving, written[:len(surviving)]),
		Seen: fmt.Sprintf("the first %d of a user's %d writes", len(surviving), len(written))}
	switch {
	case !hole.Same:
		hole.Seen = fmt.Sprintf("of a user's %d writes %d are there, and not the first", len(written), len(surviving))
	case r.RPO.Gone < writesAfterBackup:
		hole.Same, hole.Seen = false, fmt.Sprintf("only %d of a user's writes are gone, and %d came after the backup: this "+
			"is not what was restored", r.RPO.Gone, writesAfterBackup)
	}
	r.Comparisons = append(r.Comparisons, hole)
}

// conclude decides whether the drill has passed.
func (r *Report) conclude() { r.Passed = allSame(r.Comparisons) }

// allSame is false also where nothing was compared.
func allSame(found []Comparison) bool {
	return len(found) > 0 && !slices.ContainsFunc(found, func(c Comparison) bool { return !c.Same })
}
