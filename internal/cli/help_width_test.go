package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Help and errors keep inside a terminal of 80 columns.
func TestHelpAndErrorsAtATerminal(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, args := range []string{"help", "help pivot", "help image", "--help", "all --lab CONTROL_PLANE_REPLICAS=4"} {
		r := at(t, dir, "", "", strings.Fields(args)...)
		if r.stdout+r.stderr == "" {
			t.Errorf("%s says nothing", args)
		}
		for line := range strings.Lines(r.stdout + r.stderr) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n >= 100 {
				t.Errorf("%s: %d columns at a terminal of 100: %q", args, n, line)
			}
		}
	}
}
