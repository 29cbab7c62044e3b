package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
)

// help prints what the command takes, or more about one target.
func (c *command) help(_ context.Context, a arguments) error {
	about := a.Targets[1:]
	if len(about) == 0 {
		return c.folded(usage)
	}
	plan, err := steps.New(steps.Defaults(), steps.Tools{Management: &kindManagement{}})
	if err != nil {
		return err
	}
	return c.folded(func(out io.Writer) error { return helpAbout(out, about, plan) })
}

func helpAbout(out io.Writer, about []string, plan *steps.Plan) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	infos := plan.Graph.Steps()
	if i := slices.IndexFunc(infos, func(s flow.Info) bool { return s.Name == about[0] }); i >= 0 && len(about) == 1 {
		helpOnStep(w, infos, infos[i], plan)
		return w.Flush()
	}
	found := false
	for _, t := range targets() {
		if name := strings.Join(about, " "); t.name == name || t.words()[0] == name {
			helpOnTarget(w, t, plan)
			found = true
		}
	}
	if !found {
		_, err := resolveTargets(about, plan, false)
		if err == nil {
			err = usagef("help is about one target: write help TARGET")
		}
		return err
	}
	return w.Flush()
}

// helpOnTarget is about a target of the table.
func helpOnTarget(w io.Writer, t target, plan *steps.Plan) {
	fmt.Fprintf(w, "bootstrap %s\n  %s\n", t.usage(), t.doc)
	if !t.alone() {
		fmt.Fprintf(w, "  is: %s, with all that they hang on\n", strings.Join(t.steps(plan), ", "))
	}
	if len(t.outputs) > 0 {
		fmt.Fprintf(w, "  --output also: %s\n", strings.Join(t.outputs, ", "))
	}
	printFlags(w, t.flags)
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
		if l.Kind == flow.LinkYields {
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
	printFlags(w, stepFlags()[s.Name])
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
