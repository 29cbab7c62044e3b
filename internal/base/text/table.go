// Package text formats text for people: tables, lines of a terminal's width, durations and sizes, and words as a shell
// reads them.
package text

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	columnGap = 2
	// beneath is how far the columns that do not fit beside the others are set in below them.
	beneath = 4
)

// Table writes rows under a head. Columns that are wider together than the terminal are placed below each other, in the
// head and in every row; a cell that is wider than its place goes on in a line below, and so do its own lines. width is
// the terminal's; 0: it is none.
func Table(w io.Writer, width int, head []string, rows ...[]string) {
	widest := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			for line := range strings.Lines(cell) {
				widest[i] = max(widest[i], utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	var groups [][2]int // from, to
	room, used := width-1, 0
	for i := range head {
		needs := widest[i]
		if i == len(head)-1 {
			needs = min(needs, readable)
		}
		if i == 0 || width >= Narrowest && used+needs > room {
			groups = append(groups, [2]int{i, i})
			used = min(len(groups)-1, 1) * beneath
		}
		groups[len(groups)-1][1] = i + 1
		used += widest[i] + columnGap
	}
	for _, row := range append([][]string{head}, rows...) {
		for n, g := range groups {
			indent := min(n, 1) * beneath
			for _, line := range cells(row[g[0]:g[1]], widest[g[0]:g[1]], room-indent) {
				if line = strings.TrimRight(strings.Repeat(" ", indent)+line, " "); line != "" || n == 0 {
					fmt.Fprintln(w, line)
				}
			}
		}
	}
}

// cells are some of a row's, beside each other. The last goes on in its own column.
func cells(row []string, widest []int, room int) []string {
	last, before := len(row)-1, ""
	for i, cell := range row[:last] {
		before += cell + strings.Repeat(" ", widest[i]-utf8.RuneCountInString(cell)+columnGap)
	}
	taken := utf8.RuneCountInString(before)
	var lines []string
	for text := range strings.Lines(row[last] + "\n") {
		for _, line := range Within(strings.TrimSuffix(text, "\n"), room-taken) {
			lines = append(lines, before+line)
			before = strings.Repeat(" ", taken)
		}
	}
	return lines
}
