package cli

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session/drill"
)

// printDrill prints the report of a drill.
func printDrill(out io.Writer, r drill.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printVerdict(w, "drill of", r.Cluster, r.Passed, r.Parts)
	fmt.Fprintln(w, "\nSTEP OF THE RESTORE\tTIME\tDONE, AFTER THE LOSS")
	for _, s := range r.Steps {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Step, text.Elapsed(s.Elapsed), text.Elapsed(s.After))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printComparisons(w, r.Comparisons)
	fmt.Fprintln(w)
	printDrillFigures(w, r)
	return w.Flush()
}

// printVerdict prints whether a drill has passed, and how long its parts took.
func printVerdict(w io.Writer, what, cluster string, passed bool, parts []drill.Part) {
	verdict := "passed"
	if !passed {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\nthe %s cluster %s has %s\n\nPART\tTIME\n", what, text.Printable(cluster), verdict)
	for _, p := range parts {
		fmt.Fprintf(w, "%s\t%s\n", p.Name, text.Elapsed(p.Elapsed))
	}
}

// printComparisons prints a table of what was compared.
func printComparisons(w io.Writer, all []drill.Comparison) {
	fmt.Fprintln(w, "\nCHECK\tRESULT\tDETAIL")
	for _, c := range all {
		is := "same"
		if !c.Same {
			is = "DIFFERS"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.What, is, text.Printable(c.Seen))
	}
}

func printDrillFigures(w io.Writer, r drill.Report) {
	fmt.Fprintf(w, "RTO\t%s\tfrom the loss until the cluster was complete\n", text.Elapsed(r.RTO))
	for _, m := range []struct{ step, what string }{
		{"etcd-bootstrap", "until the API answers, with the data"},
		{"wait-nodes", "until every node is Ready"},
		{"pivot", "until it manages itself"},
	} {
		if i := slices.IndexFunc(r.Steps, func(s drill.Step) bool { return s.Step == m.step }); i >= 0 {
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

// printRehearsal prints the report of the rehearsal of a change.
func printRehearsal(out io.Writer, r drill.RehearsalReport) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printVerdict(w, "rehearsal of "+r.Change+" on", r.Cluster, r.Passed, r.Parts)
	for i, changed := range r.Changed {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n", text.Printable(changed))
	}
	fmt.Fprintln(w, "\nSTEP\tTIME")
	for _, s := range r.Stages {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, text.Elapsed(s.Elapsed))
	}
	printComparisons(w, r.Comparisons)
	if r.API.Requests > 0 {
		fmt.Fprintf(w, "\n%s\n", r.API)
	}
	return w.Flush()
}
