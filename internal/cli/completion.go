package cli

import (
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// addCompletion adds cobra's command that prints scripts for shells. Without a shell, or with an unknown one, it is bad
// usage.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, unknownSubcommand
		}
	}
}

// completeVariables completes KEY=VALUE, which may follow every command. Without a letter of theirs variables are not
// offered: there are too many.
func completeVariables(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if name, value, is := strings.Cut(begun, "="); is {
		return completeValue(name, value), cobra.ShellCompDirectiveNoFileComp
	}
	if begun != "" && unicode.IsUpper(rune(begun[0])) {
		var found []cobra.Completion
		for _, v := range config.Variables() {
			if strings.HasPrefix(v.Name, begun) {
				found = append(found, cobra.CompletionWithDesc(v.Name+"=", v.Doc))
			}
		}
		return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	if needed, optional := argumentsOf(cmd); slices.ContainsFunc(append(needed, optional), isPath) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func isPath(argument string) bool {
	return argument == "FILE" || argument == "FOLDER" || argument == "FOLDER…"
}

// completeValue are the values of a variable that can be listed.
func completeValue(name, begun string) (found []cobra.Completion) {
	for _, v := range config.Variables() {
		for _, choice := range v.Choices() {
			if v.Name == name && strings.HasPrefix(choice, begun) {
				found = append(found, name+"="+choice)
			}
		}
	}
	return found
}

// completeTargets completes further targets of a run.
func completeTargets(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	found, directive := completeVariables(cmd, given, begun)
	if len(found) > 0 {
		return found, directive
	}
	for _, other := range cmd.Root().Commands() {
		if _, is := other.Annotations[ofSteps]; is && strings.HasPrefix(other.Name(), begun) {
			found = append(found, cobra.CompletionWithDesc(other.Name(), other.Short))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeFault completes what a kind of fault takes.
func completeFault(kind lab.FaultKind) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var found []cobra.Completion
		for _, key := range kind.Keys() {
			if strings.HasPrefix(key+"=", begun) {
				found = append(found, cobra.CompletionWithDesc(key+"=", lab.FaultKeys()[key].Doc))
			}
		}
		return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}
