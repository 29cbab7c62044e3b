package main

import (
	"strings"
	"unicode/utf8"
)

// row is something on the screen: a mark, columns, and beside them a text that
// goes on in further lines where it is long.
type row struct {
	mark, style string // style is the mark's colour
	columns     string
	text        string
}

const (
	narrowest    = 20 // columns; what is narrower is no real terminal, and not wrapped for
	besideFrom   = 90 // columns; a text with fewer beside its row's columns goes on below them, where more fits
	indentNarrow = 4
)

// lines writes the row in at most so many lines (0: in as many as it takes),
// none of which fills the width: some terminals wrap a line that does.
func (r row) lines(width, most int) []string {
	if r.mark == "" {
		return nil
	}
	head := r.mark + r.columns
	room := width - 1
	if room < narrowest {
		return []string{head + r.text}
	}
	taken := utf8.RuneCountInString(head)
	indent := taken
	if room-taken < besideFrom {
		indent = min(taken, indentNarrow)
	}
	lines := wrap(r.text, room-taken, room-indent, most)
	for i, line := range lines {
		if i > 0 {
			lines[i] = strings.Repeat(" ", indent) + line
			continue
		}
		if line == "" {
			head = cut(strings.TrimRight(head, " "), room)
		}
		lines[i] = head + line
	}
	return lines
}

// wrap breaks a text between words, and words that are longer than a line. The
// first line has its own length and may stay empty. Of more lines than most
// (0: any number) the rest is cut off.
func wrap(text string, first, other, most int) []string {
	var lines []string
	line, room := "", first
	end := func() {
		lines = append(lines, line)
		line, room = "", other
	}
	for _, word := range strings.Fields(text) {
		letters := []rune(word)
		if line != "" {
			if utf8.RuneCountInString(line)+1+len(letters) <= room {
				line += " " + word
				continue
			}
			end()
		}
		if len(letters) > room && room < other {
			end()
		}
		for len(letters) > room {
			line, letters = string(letters[:room]), letters[room:]
			end()
		}
		line = string(letters)
	}
	lines = append(lines, line)
	if most == 0 || len(lines) <= most {
		return lines
	}
	if most == 1 {
		other = first
	}
	lines = lines[:most]
	lines[most-1] = cut(lines[most-1]+"…", other)
	return lines
}

// cut shortens a text to so many columns.
func cut(text string, columns int) string {
	letters := []rune(text)
	switch {
	case len(letters) <= columns:
		return text
	case columns < 1:
		return ""
	}
	return string(letters[:columns-1]) + "…"
}
