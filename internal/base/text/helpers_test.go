package text

import (
	"strings"
	"testing"
)

// fits tells the lines that a terminal would break in the middle of a word.
func fits(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
