package text

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Printable makes one line of plain characters out of a text from elsewhere, so
// that nothing in it can move a cursor or begin a line of its own.
func Printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// Elapsed writes a duration as a person says it: 0.4s, 12.3s, 3m05s, 1h02m.
func Elapsed(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	default:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
}

// Plural is "1 node" or "3 nodes".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Size writes bytes for a person.
func Size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d kB", (n+1023)>>10)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

// Dash is a printable text, or "-" where it is empty.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return Printable(s)
}

// LastLine is the last line of a text that is not empty.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return Printable(lines[len(lines)-1])
}
