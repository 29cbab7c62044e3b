package cli

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/operation/drill"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
)

// Parts of a drill whose names the report needs.
const (
	partBootstrap = "bootstrap"
	partRestore   = "restore"
)

// drillReport is what a drill found out, in `bootstrap drill --output json`.
type drillReport struct {
	Kind        string           `json:"kind"` // "drill", to tell it from events
	Cluster     string           `json:"cluster"`
	Began       time.Time        `json:"began"`
	Passed      bool             `json:"passed"`
	Parts       []drillPart      `json:"parts"`
	Comparisons []drill.Likeness `json:"comparisons"`

	RTO       time.Duration `json:"rtoNs"` // from the loss to the whole cluster
	Steps     []drillStep   `json:"steps"` // of the restore, in the order of their ends
	Bootstrap time.Duration `json:"bootstrapNs,omitempty"`
	Ratio     float64       `json:"ratio,omitempty"` // RTO / Bootstrap
	RPO       drillLoss     `json:"rpo"`
	Seed      uint64        `json:"seed,omitempty"` // of the faults
	Faults    []drillFault  `json:"faults,omitempty"`
	Attempts  int           `json:"attempts"` // of the restore
}

// drillPart is one part of a drill.
type drillPart struct {
	Name    string        `json:"name"`
	Elapsed time.Duration `json:"elapsedNs"`
}

// drillStep is a step of the restore.
type drillStep struct {
	Step    string        `json:"step"`
	Elapsed time.Duration `json:"elapsedNs"`
	After   time.Duration `json:"afterNs"` // the loss, when it was done
}

// drillLoss is what a user has lost.
type drillLoss struct {
	Time    time.Duration `json:"ns"`                // between the last write that is there and the loss
	Written int           `json:"written,omitempty"` // by the user
	Gone    int           `json:"gone,omitempty"`    // of these
}

// drillFault is a fault that was in force during the restore.
type drillFault struct {
	Fault string `json:"fault"`
	Spent bool   `json:"spent"` // it had ended by itself
	Hits  int    `json:"hits"`  // of one that had not
	id    int64
}

func (f drillFault) String() string {
	if f.Spent {
		return "it has come about and is over"
	}
	return fmt.Sprintf("%d hits", f.Hits)
}

// watcher keeps what runs tell.
type watcher struct {
	events  []flow.Event         // the ends of steps
	summary summary              // of the last run that was done
	api     upgrade.Availability // of the last upgrade
}

func (w *watcher) Event(e flow.Event) {
	if e.Kind == flow.StepDone {
		w.events = append(w.events, e)
	}
}

func (w *watcher) Close() {}

// recover takes the restore's steps up.
func (r *drillReport) recover(lost time.Time, ends []flow.Event, end time.Time) {
	r.RTO = end.Sub(lost)
	for _, e := range ends {
		r.Steps = append(r.Steps, drillStep{Step: e.Step, Elapsed: e.Elapsed, After: e.Time.Sub(lost)})
	}
	if r.Bootstrap > 0 {
		r.Ratio = r.RTO.Seconds() / r.Bootstrap.Seconds()
	}
}

// lose takes up what the user lost. Nothing that was written before a write that
// is there may be gone.
func (r *drillReport) lose(lost time.Time, written, surviving []drill.Write) {
	r.RPO = drillLoss{Written: len(written), Gone: len(written) - len(surviving)}
	if len(written) == 0 {
		return
	}
	last := written[0].At
	if len(surviving) > 0 {
		last = surviving[len(surviving)-1].At
	}
	r.RPO.Time = lost.Sub(last)
	hole := drill.Likeness{What: "what was written up to the snapshot is there, and nothing since",
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
func (r *drillReport) conclude() {
	r.Passed = len(r.Comparisons) > 0 &&
		!slices.ContainsFunc(r.Comparisons, func(c drill.Likeness) bool { return !c.Same })
}

func (r *drillReport) print(out io.Writer, format string) error {
	if format == "json" {
		return ui.PrintJSONLine(out, r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	verdict := "passed"
	if !r.Passed {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\nthe drill of cluster %s has %s\n\nPART\tTIME\n", text.Printable(r.Cluster), verdict)
	for _, p := range r.Parts {
		fmt.Fprintf(w, "%s\t%s\n", p.Name, text.Elapsed(p.Elapsed))
	}
	fmt.Fprintln(w, "\nSTEP OF THE RESTORE\tTIME\tDONE, AFTER THE LOSS")
	for _, s := range r.Steps {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Step, text.Elapsed(s.Elapsed), text.Elapsed(s.After))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printComparisons(w, r.Comparisons)
	fmt.Fprintln(w)
	r.printFigures(w)
	return w.Flush()
}

// printComparisons prints a table of what was compared.
func printComparisons(w io.Writer, all []drill.Likeness) {
	fmt.Fprintln(w, "\nCOMPARED\tIS\tSEEN")
	for _, c := range all {
		is := "as it was"
		if !c.Same {
			is = "NOT SO"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.What, is, text.Printable(c.Seen))
	}
}

func (r *drillReport) printFigures(w io.Writer) {
	fmt.Fprintf(w, "RTO\t%s\tfrom the loss to the whole cluster\n", text.Elapsed(r.RTO))
	for _, m := range []struct{ step, what string }{
		{"etcd-bootstrap", "until the API answers, with the data"},
		{"wait-nodes", "until every node is Ready"},
		{"pivot", "until it manages itself"},
	} {
		if i := slices.IndexFunc(r.Steps, func(s drillStep) bool { return s.Step == m.step }); i >= 0 {
			fmt.Fprintf(w, "\t%s\t%s\n", text.Elapsed(r.Steps[i].After), m.what)
		}
	}
	if r.Ratio > 0 {
		fmt.Fprintf(w, "\t%.2f\ttimes the bootstrap in the same lab (%s)\n", r.Ratio, text.Elapsed(r.Bootstrap))
	}
	if r.RPO.Written > 0 {
		fmt.Fprintf(w, "RPO\t%s\tbetween the last write in the snapshot and the loss: %d of a user's %d writes are gone\n",
			text.Elapsed(r.RPO.Time), r.RPO.Gone, r.RPO.Written)
		fmt.Fprintln(w, "\t\tfor real it is up to the time between two backups (backup --every)")
	} else {
		fmt.Fprintf(w, "RPO\t%s\tsince the backup: what was written to the real cluster meanwhile would be lost\n",
			text.Elapsed(r.RPO.Time))
	}
	for _, f := range r.Faults {
		fmt.Fprintf(w, "fault\t\t%s: %s\n", text.Printable(f.Fault), f)
	}
	if r.Seed > 0 {
		fmt.Fprintf(w, "seed\t%d\tthe restore was run %d times\n", r.Seed, r.Attempts)
	}
}
