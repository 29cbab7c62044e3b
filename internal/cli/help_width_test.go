package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Help and errors keep inside a terminal of 100 columns, and the command's own help on one screen.
func TestHelpAndErrorsAtATerminal(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, args := range []string{"help", "help pivot", "help image", "--help", "help variables", "help steps", "help flags",
		"all --lab CONTROL_PLANE_REPLICAS=4"} {
		r := at(t, dir, "", "", strings.Fields(args)...)
		if r.stdout+r.stderr == "" {
			t.Errorf("%s says nothing", args)
		}
		if lines := strings.Count(r.stdout, "\n"); args == "--help" && lines > 44 {
			t.Errorf("--help has %d lines at a terminal of 100 columns:\n%s", lines, r.stdout)
		}
		for line := range strings.Lines(r.stdout + r.stderr) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n >= 100 {
				t.Errorf("%s: %d columns at a terminal of 100: %q", args, n, line)
			}
		}
	}
}
