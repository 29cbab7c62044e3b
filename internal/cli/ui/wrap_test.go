package ui

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// No line of any width is longer than the terminal, and no word is lost.
func TestWrap(t *testing.T) {
	words := "a few words and one-that-is-much-longer-than-any-line-can-be-on-a-narrow-terminal, äöü, and an end"
	bare := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	for width := text.Narrowest + 2; width < 130; width++ {
		r := row{mark: "✓", columns: columns(widestName, "wait-nodes", "1.0s"), text: words}
		all := r.lines(width, 0)
		for _, line := range append(all, r.lines(width, 2)...) {
			if n := len([]rune(line)); n >= width {
				t.Errorf("%d columns in a terminal of %d: %q", n, width, line)
			}
		}
		if few := r.lines(width, 2); len(few) > 2 || len(all) > 2 && !strings.HasSuffix(few[1], "…") {
			t.Errorf("in two lines of %d: %q", width, few)
		}
		if width > 30 && bare(strings.Join(all, "")) != bare(r.mark+r.columns+words) {
			t.Errorf("width %d: %q", width, all)
		}
	}
}
