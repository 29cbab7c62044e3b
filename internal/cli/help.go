package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kind"
	"github.com/slipway-k8s/slipway/internal/lab"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// runHelp prints what the command takes, or more about one target.
func runHelp(_ context.Context, c *console, a arguments) error {
	about := a.Targets[1:]
	if len(about) == 0 {
		return printFolded(c, printUsage)
	}
	return helpOn(c, about)
}

// helpOn prints more about one target.
func helpOn(c *console, about []string) error {
	plan, err := steps.New(steps.Defaults(), steps.Tools{Management: &kind.Provider{}})
	if err != nil {
		return err
	}
	return printFolded(c, func(out io.Writer) error { return helpAbout(out, about, plan) })
}

// helpFlag is help about the target that the words ask for; of none, or several, all of it.
func helpFlag(c *console, words []string) error {
	if t, found := asked(words); found {
		about := t.words()
		if t.name == targetFaultAdd && len(words) > len(about) {
			about = words[:len(about)+1]
		}
		return helpOn(c, about)
	}
	if len(words) == 1 {
		return helpOn(c, words)
	}
	return printFolded(c, printUsage)
}

// helpAbout is about the step or the targets that the words name, or begin with.
func helpAbout(out io.Writer, about []string, plan *steps.Plan) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	infos := plan.Graph.Steps()
	if i := slices.IndexFunc(infos, func(s flow.Info) bool { return s.Name == about[0] }); i >= 0 && len(about) == 1 {
		helpOnStep(w, infos, infos[i], plan)
		return w.Flush()
	}
	if t, found := asked(about); found && t.name == targetFaultAdd && len(about) > len(t.words()) {
		return helpOnFault(w, t, t.rest(about)[0])
	}
	found := false
	for _, t := range targets() {
		if name := t.words(); len(name) >= len(about) && slices.Equal(name[:len(about)], about) {
			if found {
				fmt.Fprintln(w)
			}
			helpOnTarget(w, t, plan)
			found = true
		}
	}
	if found {
		return w.Flush()
	}
	if so, verbs := following(about); len(verbs) > 0 {
		return halfNamed(about, so, verbs)
	}
	if _, err := resolveTargets(about, plan, false); err != nil {
		return err
	}
	return usage.Errorf("help is about one target: write help TARGET")
}

// helpOnTarget is about a target of the table.
func helpOnTarget(w *tabwriter.Writer, t target, plan *steps.Plan) {
	m := manuals()[t.name]
	fmt.Fprintf(w, "bootstrap %s\n  %s\n", t.usage(), t.doc)
	for _, a := range m.arguments {
		fmt.Fprintf(w, "  %s: %s\n", a.name, a.doc)
	}
	if t.name == targetFaultAdd {
		for _, k := range lab.FaultKinds() {
			fmt.Fprintf(w, "    %s\t%s\n", k.Name, k.Doc)
		}
	}
	names := t.flags
	if !t.alone() {
		fmt.Fprintf(w, "  is: %s, with all that they hang on\n", strings.Join(t.steps(plan), ", "))
		names = slices.Concat(names, runFlags())
	}
	if m.needs != "" {
		fmt.Fprintf(w, "  needs: %s\n", m.needs)
	}
	m.print(w)
	if len(t.outputs) > 0 {
		fmt.Fprintf(w, "  --output also: %s\n", strings.Join(t.outputs, ", "))
	}
	printFlags(w, names)
	printSharedFlags(w)
}

// helpOnFault is about one kind of fault.
func helpOnFault(w *tabwriter.Writer, t target, name string) error {
	kind, err := lab.FaultKindOf(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "bootstrap %s %s [key=value…]\n", t.name, kind.Name)
	kind.Describe(func(format string, args ...any) { fmt.Fprintf(w, "  "+format+"\n", args...) })
	m := manuals()[t.name]
	fmt.Fprintf(w, "  see: docs/%s\n", m.page)
	return w.Flush()
}

// print writes what is the same for a target and a step.
func (m manual) print(w io.Writer) {
	fmt.Fprintf(w, "  changes: %s\n  example: %s %s\n", m.changes, steps.Program, m.example)
	if m.page != "" {
		fmt.Fprintf(w, "  see: docs/%s\n", m.page)
	}
}

// printSharedFlags names the flags that go with every target.
func printSharedFlags(w io.Writer) {
	var o options
	var names []string
	flags(&o).VisitAll(func(f *flag.Flag) {
		if len(f.Name) > 1 && len(flagOwners(f.Name)) == 0 && !slices.Contains(runFlags(), f.Name) {
			names = append(names, "--"+f.Name)
		}
	})
	fmt.Fprintf(w, "  flags of every target: %s\n", strings.Join(names, ", "))
}

// helpOnStep is about a step: what it brings, what waits for it, how long it may
// take.
func helpOnStep(w io.Writer, all []flow.Info, s flow.Info, plan *steps.Plan) {
	fmt.Fprintf(w, "bootstrap %s\n  %s\n", s.Name, s.Doc)
	if len(s.Needs) > 0 {
		fmt.Fprintf(w, "  brings and comes after: %s\n", strings.Join(s.Needs, ", "))
	}
	var yields, waiting, parts []string
	for _, l := range s.Behind {
		if l.Kind == flow.LinkOrderAfter {
			yields = append(yields, l.Step)
		}
	}
	if len(yields) > 0 {
		fmt.Fprintf(w, "  comes after, where they are asked for too: %s\n", strings.Join(yields, ", "))
	}
	for _, other := range all {
		if slices.Contains(other.Needs, s.Name) {
			waiting = append(waiting, other.Name)
		}
	}
	if len(waiting) > 0 {
		fmt.Fprintf(w, "  is brought by: %s\n", strings.Join(waiting, ", "))
	}
	for name, part := range map[string][]string{targetBootstrap: plan.Bootstrap, targetAll: plan.All} {
		if slices.Contains(brought(all, part), s.Name) {
			parts = append(parts, name)
		}
	}
	slices.Sort(parts)
	if len(parts) > 0 {
		fmt.Fprintf(w, "  is part of: %s\n", strings.Join(parts, ", "))
	}
	if s.Exempt {
		fmt.Fprintln(w, "  can be run after the pivot, too")
	}
	if s.Sealed {
		fmt.Fprintln(w, "  is a point of no return: what comes before it is not run again")
	}
	fmt.Fprintf(w, "  fails after: %s\n", steps.Duration(s.Deadline))
	manuals()[s.Name].print(w)
	printFlags(w, slices.Concat(stepFlags()[s.Name], runFlags()))
	printSharedFlags(w)
}

// brought are steps with all that they hang on.
func brought(all []flow.Info, names []string) []string {
	var found []string
	var bring func(string)
	bring = func(name string) {
		if slices.Contains(found, name) {
			return
		}
		found = append(found, name)
		for _, s := range all {
			if s.Name == name {
				for _, need := range s.Needs {
					bring(need)
				}
			}
		}
	}
	for _, name := range names {
		bring(name)
	}
	return found
}

// printFlags prints the named flags as the usage text does.
func printFlags(w io.Writer, names []string) {
	var o options
	set := flags(&o)
	for _, name := range names {
		f := set.Lookup(name)
		if f == nil || len(name) == 1 {
			continue
		}
		value, text := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "  --%s\t%s\n", strings.TrimSpace(name+" "+value), text)
	}
}
