package text

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// readable is the least room beside a left column; with less the text goes below it.
	readable = 30
	// belowColumn is how far the text is set in there.
	belowColumn = 6
)

// columned is a line with a text in a right column, behind the word error or
// behind its indentation.
var columned = regexp.MustCompile(`^(error: |\s*\S.*?\s{2,}|\s*)(\S.*)$`)

// Fold breaks the lines of a text between words, where there is a terminal and
// they are longer than its lines. What goes on is set in as the line's text is.
func Fold(text string, width int) string {
	if width-1 < Narrowest {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(bare) < width {
			out.WriteString(line)
			continue
		}
		parts := columned.FindStringSubmatch(bare)
		head, rest := parts[1], parts[2]
		indent := utf8.RuneCountInString(head)
		first := width - 1 - indent
		if column := strings.TrimSpace(head); column != "" && column != "error:" && first < readable {
			out.WriteString(strings.TrimRight(head, " ") + "\n")
			head, indent = strings.Repeat(" ", belowColumn), belowColumn
			first = width - 1 - indent
		}
		for i, part := range Wrap(rest, first, first, 0) {
			if i > 0 {
				head = strings.Repeat(" ", indent)
			}
			out.WriteString(head + part + "\n")
		}
	}
	return out.String()
}
