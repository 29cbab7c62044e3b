package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// typed is a parsed command line: flags and KEY=VALUE may be anywhere among the words.
type typed struct {
	words  []string // targets and their arguments, in their order
	flags  []string // with their values
	values []settings.Assignment
}

// splitArgs sorts what was typed. Cobra wants the words of a command first.
func splitArgs(root *cobra.Command, args []string) (t typed, err error) {
	for i := 0; i < len(args); i++ {
		switch word := args[i]; {
		case word == "--":
			t.words = append(t.words, args[i+1:]...)
			return t, nil
		case strings.HasPrefix(word, "-") && word != "-":
			t.flags = append(t.flags, word)
			if wantsValue(root, word) && i+1 < len(args) {
				i++
				t.flags = append(t.flags, args[i])
			}
		case slices.Equal(t.words[:min(3, len(t.words))], []string{"lab", "fault", "add"}):
			// its own key=value, and no variable's
			t.words = append(t.words, word)
		case strings.Contains(word, "="):
			value, err := settings.ParseAssignment(word)
			if err != nil {
				return t, &usage.Error{Err: err}
			}
			t.values = append(t.values, value)
		case slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == word }):
			return t, usage.Errorf("%s is a variable, not a target: write %s=value", word, word)
		default:
			t.words = append(t.words, word)
		}
	}
	return t, nil
}

// wantsValue reports whether the next word is the flag's value. A flag has the same kind of value wherever it goes.
func wantsValue(root *cobra.Command, word string) (wants bool) {
	name := strings.TrimLeft(word, "-")
	if strings.Contains(name, "=") {
		return false
	}
	walk(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == name && strings.HasPrefix(word, "--") && f.NoOptDefVal == "" {
				wants = true
			}
		})
	})
	return wants
}

// forCompletion is what a shell asks to complete, with the words of the command first and without KEY=VALUE. The last
// is not whole yet.
func forCompletion(root *cobra.Command, args []string) []string {
	if len(args) < 2 {
		return args
	}
	last := len(args) - 1
	var kept []string
	for _, word := range args[1:last] {
		if key, _, is := strings.Cut(word, "="); !is || strings.HasPrefix(word, "-") || key != strings.ToUpper(key) {
			kept = append(kept, word)
		}
	}
	t, err := splitArgs(root, kept)
	if err != nil {
		return args
	}
	return slices.Concat(args[:1], t.words, t.flags, args[last:])
}
