package status

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
)

// Print writes the report for a person. width is the terminal's; 0: it is none.
func (r Report) Print(out io.Writer, width int) error {
	r.printHead(out, width)
	if err := printSteps(out, r.Steps, width); err != nil {
		return err
	}
	if r.Now != nil {
		printWaiting(out, *r.Now, len(r.Begun) > 0 || r.Existing != nil, width)
	}
	return r.printRest(out, width)
}

// PrintWatched is print for a terminal of so many lines. Where they are too few, what is waited for comes first, and of
// the steps that are done and stand there is the number alone.
func (r Report) PrintWatched(out io.Writer, width, lines int) error {
	var all bytes.Buffer
	if err := r.Print(&all, width); err != nil {
		return err
	}
	if bytes.Count(all.Bytes(), []byte("\n")) <= lines {
		_, err := all.WriteTo(out)
		return err
	}
	r.printHead(out, width)
	if r.Now != nil {
		printWaiting(out, *r.Now, len(r.Begun) > 0 || r.Existing != nil, width)
	}
	open := slices.DeleteFunc(slices.Clone(r.Steps), Step.settled)
	fmt.Fprintf(out, "\n%d of %d steps done\n", len(r.Steps)-len(open), len(r.Steps))
	if len(open) > 0 {
		if err := printSteps(out, open, width); err != nil {
			return err
		}
	}
	return r.printRest(out, width)
}

func (r Report) printHead(out io.Writer, width int) {
	if r.Now != nil && r.Now.Lost != nil {
		printFirst(out, r.Now.Lost.Sentence, "which disaster it is, and what to type", r.Now.Lost.Command, width)
	}
	if r.Now != nil && r.Now.Pivot != nil {
		printFirst(out, r.Now.Pivot.Sentence, "to resume it", r.Now.Pivot.Command, width)
	}
	if r.Existing != nil {
		printFirst(out, r.Existing.Sentence, "", "", width)
	}
	for _, o := range r.Begun {
		if o.Operation != unfinished.Pivot || r.Now == nil || r.Now.Pivot == nil { // that one is said above, with more
			printFirst(out, o.Sentence, "run the same again", o.Command, width)
		}
	}
	fmt.Fprintf(out, "state: %s\n", r.State)
	if r.Offline != "" {
		fmt.Fprintf(out, "Hetzner and the clusters were not asked: %s\n", r.Offline)
	}
}

// printFirst writes what a person has to know before anything else, and what to type. A command stays in one line, to
// be copied.
func printFirst(out io.Writer, sentence, what, command string, width int) {
	fmt.Fprint(out, text.Fold(text.Printable(sentence)+"\n", width))
	if command != "" {
		fmt.Fprintf(out, "%s: %s\n", what, command)
	}
	fmt.Fprintln(out)
}

func printSteps(out io.Writer, all []Step, width int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var rows [][]string
	behind, at := Step{}, -1 // the steps before a seal have one row
	for _, s := range all {
		if s.Sealed != "" && s.settled() {
			if at < 0 {
				behind, at = s, len(rows)
				rows = append(rows, nil)
			} else {
				behind.Step += ", " + s.Step
			}
			continue
		}
		took := ""
		if !s.Ended.IsZero() {
			took = text.Elapsed(max(0, s.Ended.Sub(s.Started))) // the clock may have been set back
		}
		rows = append(rows, []string{s.Step, s.State, took, s.verified(), text.Printable(s.Remarks())})
	}
	if at >= 0 {
		n := strings.Count(behind.Step, ",") + 1
		rows[at] = []string{text.Plural(n, "step", "steps"), behind.State, "", behind.verified(), behind.Remarks() +
			": " + behind.Step}
	}
	fmt.Fprintln(w)
	text.Table(w, width, []string{"STEP", "STATE", "TOOK", "VERIFIED", "REMARKS"}, rows...)
	return w.Flush()
}

// printRest writes what neither the steps say nor what is waited for.
func (r Report) printRest(out io.Writer, width int) error {
	if r.Now != nil {
		if err := printNow(out, *r.Now, width); err != nil {
			return err
		}
	}
	if lines := r.Comparison.Lines(); len(lines) > 0 {
		fmt.Fprintf(out, "\n%s", text.Fold(strings.Join(lines, "\n")+"\n", width))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\n%s", text.Fold("note: "+text.Printable(note)+"\n", width))
	}
	return nil
}

// printWaiting writes what is waited for, and why: each cause on a line, and below it what to do about it. told tells
// that something else was said first.
func printWaiting(out io.Writer, o Overview, told bool, width int) {
	line := func(format string, args ...any) {
		fmt.Fprint(out, text.Fold(text.Plainly(fmt.Sprintf(format, args...))+"\n", width))
	}
	w := o.Waiting
	switch {
	case w.For != "":
		line("\nwaiting for %s: %s", text.Printable(w.For), text.Printable(w.Missing))
	case o.Sentence != "":
		line("\n%s", strings.ReplaceAll(text.Printable(o.Sentence), "; ", "\n  "))
	case o.Lost == nil && o.Pivot == nil && !told:
		line("\nnothing is waited for")
	}
	for _, f := range w.Findings {
		line("  %s", text.Printable(f.String()))
		if f.Do != "" {
			line("    to do: %s", text.Printable(f.Do))
		}
	}
}

// printNow writes what of the cluster is observed now.
func printNow(out io.Writer, o Overview, width int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printServers(w, o, width)
	if len(o.Releases) > 0 {
		fmt.Fprintln(w, "\nRELEASE\tNAMESPACE\tREVISION\tSTATUS")
		for _, r := range o.Releases {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", r.Name, r.Namespace, r.Revision, r.Status)
		}
	}
	if len(o.Targets) > 0 {
		fmt.Fprintln(w, "\nLOAD BALANCER\tPORT\tTARGET\tHEALTH")
		for _, t := range o.Targets {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", t.LoadBalancer, t.Port, serverName(o, t.Server), t.Health)
		}
	}
	if len(o.Certificates) > 0 {
		fmt.Fprintln(w, "\nCERTIFICATE\tENDS")
		for _, c := range o.Certificates {
			fmt.Fprintf(w, "%s\t%s\n", c.Of, c.Ends.Format(time.DateOnly))
		}
	}
	if cost := o.Cost.String(); cost != "-" {
		fmt.Fprintf(w, "\ncosts a month\t%s\n", cost)
	}
	if len(o.Unknown) > 0 {
		var rows [][]string
		for _, u := range o.Unknown {
			rows = append(rows, []string{u.What, text.Printable(u.Why)})
		}
		fmt.Fprintln(w)
		text.Table(w, width, []string{"UNKNOWN", "BECAUSE"}, rows...)
	}
	return w.Flush()
}

// talosRoom is what a narrow terminal has for what a server's Talos answers. Why it does not is said in the sentence,
// too.
const talosRoom = 16

func printServers(w io.Writer, o Overview, width int) {
	if len(o.Servers) == 0 {
		return
	}
	row := func(cells ...string) {
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if 0 < width && width < text.Wide {
		row("\nSERVER", "STATE", "TALOS", "ETCD", "NODE")
		for _, s := range o.Servers {
			row(s.Name, s.State, text.Cut(text.Printable(s.Talos), talosRoom), memberOf(o, s.Name), s.Node)
		}
		row("\nMACHINE", "PHASE", "SERVER")
		for _, s := range o.Servers {
			row(s.Machine, s.Phase, s.Name)
		}
		return
	}
	row("\nSERVER", "STATE", "MACHINE", "PHASE", "TALOS", "ETCD", "NODE")
	for _, s := range o.Servers {
		row(s.Name, s.State, s.Machine, s.Phase, text.Printable(s.Talos), memberOf(o, s.Name), s.Node)
	}
}

// memberOf is what etcd says of a server; empty: it has no such member, or did not tell.
func memberOf(o Overview, server string) string {
	for _, m := range o.Etcd {
		switch {
		case m.Name != server:
		case m.Learner:
			return "learner"
		default:
			return "member"
		}
	}
	return ""
}

// serverName is a server's name where it is known, else its number.
func serverName(o Overview, id int64) string {
	for _, s := range o.Servers {
		if s.ID == id {
			return s.Name
		}
	}
	return strconv.FormatInt(id, 10)
}
