package text

import (
	"strings"
	"unicode/utf8"
)

const (
	Narrowest = 20 // columns; what is narrower is no real terminal, and not wrapped for
)

// Wrap breaks a text between words, and words that are longer than a line. The
// first line has its own length and may stay empty. Of more lines than most
// (0: any number) the rest is cut off.
func Wrap(text string, first, other, most int) []string {
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
	lines[most-1] = Cut(lines[most-1]+"…", other)
	return lines
}

// Cut shortens a text to so many columns.
func Cut(text string, columns int) string {
	letters := []rune(text)
	switch {
	case len(letters) <= columns:
		return text
	case columns < 1:
		return ""
	}
	return string(letters[:columns-1]) + "…"
}

// Within breaks a text into lines of so many columns, where that is enough to
// read; otherwise there is no terminal, or none to be fitted.
func Within(text string, columns int) []string {
	if columns < Narrowest {
		return []string{text}
	}
	return Wrap(text, columns, columns, 0)
}
