package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
)

const referencePage = "../../docs/reference.md"

const referenceHead = `# Reference

For readers who look up a target, a flag, a variable, an exit code or a JSON field of the command; the other pages
explain. The command prints the same:

` + "```sh" + `
bootstrap help             # all targets
bootstrap help backup      # one target, with its flags
bootstrap help flags       # the flags of every target
bootstrap help variables   # every variable
bootstrap config show      # every variable, its value and where the value comes from
` + "```" + `

This page is generated from the code: ` + "`go test ./internal/cli -run TestReference -update`" + `.

- [Targets](#targets): [steps](#steps), [commands](#commands), [flags of every command](#flags-of-every-command)
- [Variables](#variables)
- [Exit codes](#exit-codes)
- [JSON output](#json-output)

`

// TestReference compares docs/reference.md with what the code generates.
func TestReference(t *testing.T) {
	plan, err := planForNames()
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString(referenceHead)
	page.WriteString("## Targets\n\n`bootstrap TARGET … KEY=VALUE …`: targets that are steps can be combined. " +
		"Without a target it is `bootstrap`.\n\n")
	writeStepTargets(&page, plan)
	writeCommands(&page, newRoot(&call{only: true}, plan))
	writeVariables(&page)
	writeExitCodes(t, &page)
	writeJSON(t, &page)
	if *update {
		if err := os.WriteFile(referencePage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page.String() {
		t.Error("docs/reference.md is not what the code generates; to update it: go test ./internal/cli -run TestReference " +
			"-update")
	}
}

// table writes a table of Markdown.
func table(w *strings.Builder, head []string, rows ...[]string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", "\\|")
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
	w.WriteString("\n")
}

// code is text in the typeface of code; empty stays empty.
func code(words ...string) string {
	var quoted []string
	for _, word := range words {
		if word != "" {
			quoted = append(quoted, "`"+word+"`")
		}
	}
	return strings.Join(quoted, ", ")
}

// pageLink is a link to a page of the documentation, of which the manuals have the name.
func pageLink(page string) string {
	if page == "" {
		return ""
	}
	name, _, _ := strings.Cut(page, ".md")
	return "[" + name + "](" + page + ")"
}

// writeStepTargets writes the targets that are steps or groups of steps.
func writeStepTargets(w *strings.Builder, plan *steps.Plan) {
	w.WriteString("### Steps\n\n")
	table(w, []string{"target", "what it ensures", "steps, with all that they depend on", "page"},
		[]string{code(targetBootstrap), "the whole cluster, to Ready nodes", code(plan.Bootstrap...), pageLink("launch.md")},
		[]string{code(targetAll), "the whole first day", code(plan.All...), pageLink("pivot.md")},
	)
	w.WriteString("The steps that a target depends on run first. A step in brackets is only waited for, if it runs.\n\n")
	all := manuals()
	var rows [][]string
	for _, s := range plan.Graph.Steps() {
		m := all[s.Name]
		after := code(s.Needs...)
		for _, l := range s.Behind {
			if l.Kind == flow.LinkOrderAfter {
				after = strings.TrimPrefix(after+", ("+code(l.Step)+")", ", ")
			}
		}
		deadline := config.Duration(s.Deadline).String()
		rows = append(rows, []string{code(s.Name), s.Doc, after, m.changes, deadline, pageLink(m.page)})
	}
	table(w, []string{"target", "what it ensures", "depends on", "what it changes", "fails after", "page"}, rows...)
}

// writeCommands writes what every command takes: those of the steps where they have flags of their own.
func writeCommands(w *strings.Builder, root *cobra.Command) {
	all := manuals()
	w.WriteString("### Commands\n\n")
	walk(root, func(cmd *cobra.Command) {
		m, has := all[pathOf(cmd)]
		_, isStep := cmd.Annotations[ofSteps]
		if cmd.Name() == "completion" {
			fmt.Fprintf(w, "#### completion\n\n%s: `bootstrap completion SHELL`.\n\n", cmd.Short)
		}
		if !has || isStep {
			return
		}
		fmt.Fprintf(w, "#### %s\n\n```sh\nbootstrap %s\n```\n\n%s.\n\n", pathOf(cmd), usageOf(cmd), upperFirst(cmd.Short))
		for _, a := range m.arguments {
			fmt.Fprintf(w, "- %s: %s\n", code(a.name), a.doc)
		}
		if m.needs != "" {
			fmt.Fprintf(w, "- Needs: %s\n", m.needs)
		}
		fmt.Fprintf(w, "- Changes: %s\n- Example: %s\n", m.changes, code("bootstrap "+m.example))
		if forms := cmd.Annotations[moreOutputs]; forms != "" {
			fmt.Fprintf(w, "- `--output` also: %s\n", code(strings.Fields(forms)...))
		}
		if m.page != "" {
			fmt.Fprintf(w, "- See %s\n", pageLink(m.page))
		}
		w.WriteString("\n")
		writeFlags(w, cmd.LocalNonPersistentFlags())
	})
	w.WriteString("### Flags of every command\n\n")
	writeFlags(w, root.PersistentFlags())
	w.WriteString("### Flags of a run of steps\n\nWith `bootstrap`, `all` and every step:\n\n")
	writeFlags(w, root.LocalNonPersistentFlags())
	for _, cmd := range root.Commands() {
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if root.Flags().Lookup(f.Name) == nil {
				own.AddFlag(f)
			}
		})
		if _, isStep := cmd.Annotations[ofSteps]; isStep && own.HasFlags() {
			fmt.Fprintf(w, "Also with `%s`, where it is the only target:\n\n", cmd.Name())
			writeFlags(w, own)
		}
	}
}

func upperFirst(s string) string {
	if strings.HasPrefix(s, "etcd ") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// writeFlags writes a table of flags; nothing where there is none.
func writeFlags(w *strings.Builder, flags *pflag.FlagSet) {
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value, doc := pflag.UnquoteUsage(f)
		name := code(strings.TrimSpace("--" + f.Name + " " + value))
		if f.Shorthand != "" {
			name = code("-"+f.Shorthand) + ", " + name
		}
		value = f.DefValue
		if slices.Contains([]string{"false", "0", "0s", "-1"}, value) {
			value = ""
		}
		rows = append(rows, []string{name, doc, code(value)})
	})
	if len(rows) > 0 {
		table(w, []string{"flag", "what it does", "default"}, rows...)
	}
}

func writeVariables(w *strings.Builder) {
	w.WriteString("## Variables\n\nA value comes from `KEY=VALUE` on the command line, else from the environment, " +
		"else from `bootstrap.yaml`, else it is the default.\n\n")
	var rows [][]string
	for _, v := range config.Variables() {
		doc := v.Doc
		if choices := v.Choices(); len(choices) > 0 && len(choices) < 6 {
			doc += ": " + code(choices...)
		}
		rows = append(rows, []string{code(v.Name), code(v.Field), code(v.Default), doc})
	}
	table(w, []string{"`KEY=VALUE`, environment", "in `bootstrap.yaml`", "default", "what it is"}, rows...)
	w.WriteString("Read from the environment only:\n\n")
	rows = nil
	for _, v := range environmentOnly() {
		rows = append(rows, []string{code(strings.Split(v.name, ", ")...), v.doc})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	table(w, []string{"variable", "what it is"}, rows...)
}
