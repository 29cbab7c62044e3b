package crash

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figures summarize the ledger.
type Figures struct {
	Effects int          // that an undisturbed run has
	Points  int          // different kills, each a point of an effect, that a good case went through
	Singly  int          // of them in a case of their own
	Kills   int          // altogether
	Cases   map[Kind]int // good ones
	Of      map[Kind]int // all
	Failed  []Entry      // bad ones
	Missed  int          // whose effect never came, or whose fault never hit
	Skipped []Entry      // that this machine cannot show
	Touched int          // effects with at least one point tried
	Slower  float64      // seconds that resumed runs took longer than the undisturbed rest, the median
}

// Count summarizes a ledger.
func Count(effects []Effect, cases []Case, l *Ledger) Figures {
	f := Figures{Effects: len(effects), Cases: map[Kind]int{}, Of: map[Kind]int{}}
	points, singly, touched := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var slower []float64
	for _, c := range cases {
		f.Of[c.Kind]++
		e, ok := l.Last(c.ID)
		if !ok {
			continue
		}
		switch e.Result {
		case Good:
			f.Cases[c.Kind]++
		case Bad:
			f.Failed = append(f.Failed, e)
		case Missed:
			f.Missed++
		case Skipped:
			f.Skipped = append(f.Skipped, e)
		}
		f.Kills += e.Kills
		if e.Resumed > 0 {
			slower = append(slower, e.Resumed-e.Rest)
		}
		if e.Result != Good {
			continue
		}
		for _, covered := range e.Covered {
			points[covered] = true
			_, key, _ := strings.Cut(covered, " ")
			touched[key] = true
			if c.Kind == Single {
				singly[covered] = true
			}
		}
	}
	f.Points, f.Singly, f.Touched = len(points), len(singly), len(touched)
	if slices.Sort(slower); len(slower) > 0 {
		f.Slower = slower[len(slower)/2]
	}
	return f
}

// Print writes the figures as docs/architecture.md has them.
func (f Figures) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, count any) { fmt.Fprintf(w, "| %s\t| %v\t|\n", what, count) }
	row("figure", "count")
	row("---", "---")
	row("effects of an undisturbed run", f.Effects)
	row("effects killed at, at one point or more", f.Touched)
	row("points of effects killed at", f.Points)
	row("of them in a case of their own", f.Singly)
	row("kills in all", f.Kills)
	for _, kind := range Kinds() {
		row(describe(kind), fmt.Sprintf("%d good of %d", f.Cases[kind], f.Of[kind]))
	}
	row("cases whose effect never came, or whose fault never hit", f.Missed)
	row("cases that the machine cannot show", len(f.Skipped))
	row("failures", len(f.Failed))
	row("resumed runs against the undisturbed rest, median", fmt.Sprintf("%+.1f s", f.Slower))
	return w.Flush()
}

func describe(k Kind) string {
	return map[Kind]string{
		Single: "single kills", Chain: "chains of kills", Pair: "pairs (a kill while a kill is recovered from)",
		Random: "random schedules of two to five kills", Fault: "faults of the lab", Disk: "faults of the machine",
	}[k]
}

// PrintFailures writes what is wrong, case by case.
func PrintFailures(out io.Writer, entries []Entry) {
	for _, e := range slices.SortedFunc(slices.Values(entries),
		func(a, b Entry) int { return cmp.Compare(a.Case, b.Case) }) {
		fmt.Fprintf(out, "%s  %s\n", e.Result, e.Case)
		for _, finding := range e.Findings {
			fmt.Fprintf(out, "    %s\n", finding)
		}
		if e.Note != "" {
			fmt.Fprintf(out, "    %s\n", e.Note)
		}
	}
}

// PrintCases lists cases with their results.
func PrintCases(out io.Writer, cases []Case, l *Ledger) {
	for _, c := range cases {
		result := "-"
		if e, ok := l.Last(c.ID); ok {
			result = fmt.Sprintf("%s in %.0fs", e.Result, e.Seconds)
		}
		fmt.Fprintf(out, "%-16s %s\n", result, c.ID)
	}
}
