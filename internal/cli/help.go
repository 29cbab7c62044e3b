package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// newHelpCommand makes the command that explains others.
func newHelpCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use: "help [TARGET…]", Short: "this, or more about a target, steps, flags, variables", DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, words []string) error {
			if len(words) == 1 && c.explainTopic(cmd.Root(), words[0]) {
				return nil
			}
			about, rest, err := cmd.Root().Find(words)
			switch {
			case err != nil:
				return &usage.Error{Err: err}
			case len(rest) > 0 && about == cmd.Root():
				plan, err := planForNames()
				if err != nil {
					return err
				}
				_, err = session.ResolveTargets(rest, plan, false, commands()...)
				return err
			case len(rest) > 0 && about.HasSubCommands():
				return unknownSubcommand(about, rest)
			case len(rest) > 0:
				return usage.Errorf("help is about one target: write help TARGET")
			}
			about.InitDefaultHelpFlag()
			about.HelpFunc()(about, nil)
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, words []string, begun string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			about, _, err := cmd.Root().Find(words)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var found []cobra.Completion
			for _, below := range about.Commands() {
				if strings.HasPrefix(below.Name(), begun) {
					found = append(found, cobra.CompletionWithDesc(below.Name(), below.Short))
				}
			}
			for _, t := range topics() {
				if about == cmd.Root() && strings.HasPrefix(t.name, begun) {
					found = append(found, t.name)
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// explainTopic prints a topic of help, and reports whether there is one of the name.
func (c *call) explainTopic(root *cobra.Command, name string) bool {
	for _, t := range topics() {
		if t.name != name {
			continue
		}
		if !c.only && c.console != nil {
			var b strings.Builder
			t.print(&b, root)
			_, _ = io.WriteString(c.stdout, text.Fold(b.String(), c.width()))
		}
		return true
	}
	return false
}

// explain puts what the manual has of every command into its help.
func explain(root *cobra.Command) {
	all := manuals()
	walk(root, func(cmd *cobra.Command) {
		m, has := all[pathOf(cmd)]
		if !has {
			return
		}
		parts := []string{cmd.Short}
		for _, a := range m.arguments {
			parts = append(parts, a.name+": "+a.doc)
		}
		if cmd.Long != "" {
			parts = append(parts, cmd.Long)
		}
		if m.needs != "" {
			parts = append(parts, "needs: "+m.needs)
		}
		parts = append(parts, "changes: "+m.changes)
		if forms := cmd.Annotations[moreOutputs]; forms != "" {
			parts = append(parts, "--output also: "+strings.Join(strings.Fields(forms), ", "))
		}
		if m.page != "" {
			parts = append(parts, "see: docs/"+m.page)
		}
		cmd.Long, cmd.Example = strings.Join(parts, "\n"), "  "+platform.Program+" "+m.example
	})
}

// aboutStep says what a step depends on, what depends on it, and how long it may take.
func aboutStep(plan *steps.Plan, s flow.Info) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	all := plan.Graph.Steps()
	if len(s.Needs) > 0 {
		add("depends on: %s", strings.Join(s.Needs, ", "))
	}
	var earlier, waiting, parts []string
	for _, l := range s.Behind {
		if l.Kind == flow.LinkOrderAfter {
			earlier = append(earlier, l.Step)
		}
	}
	if len(earlier) > 0 {
		add("runs after, if they are part of the run: %s", strings.Join(earlier, ", "))
	}
	for _, other := range all {
		if slices.Contains(other.Needs, s.Name) {
			waiting = append(waiting, other.Name)
		}
	}
	if len(waiting) > 0 {
		add("is needed by: %s", strings.Join(waiting, ", "))
	}
	for name, part := range map[string][]string{targetBootstrap: plan.Bootstrap, targetAll: plan.All} {
		if slices.Contains(brought(all, part), s.Name) {
			parts = append(parts, name)
		}
	}
	slices.Sort(parts)
	if len(parts) > 0 {
		add("is part of: %s", strings.Join(parts, ", "))
	}
	if s.Exempt {
		add("can be run after the pivot, too")
	}
	if s.Sealed {
		add("is a point of no return: what comes before it is not run again")
	}
	add("fails after: %s", config.Duration(s.Deadline))
	return strings.Join(lines, "\n")
}

// brought are steps with all that they depend on.
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
