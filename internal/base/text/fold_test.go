package text

import (
	"testing"
)

func TestFold(t *testing.T) {
	for name, tc := range map[string]struct {
		width      int
		text, want string
	}{
		"no terminal": {0, "a long line stays as it is, however long it is\n", "a long line stays as it is, however " +
			"long it is\n"},
		"short": {40, "a short line\n\n  and another\n", "a short line\n\n  and another\n"},
		"between words": {24, "error: a server is out of stock here\n", "error: a server is out\n       of " +
			"stock here\n"},
		"set in": {24, "  a server is out of stock here\n", "  a server is out of\n  stock here\n"},
		"a column": {50, "  name   what it is for, in so many words as it takes to say it\n",
			"  name   what it is for, in so many words as it\n         takes to say it\n"},
		"a wide column": {44, "  a-name-that-is-long  what it is for, in so many words\n", "  a-name-that-is-long\n   " +
			"   what it is for, in so many words\n"},
		"a word without end": {24, "https://example.com/a/very/long/address\n",
			"https://example.com/a/v\nery/long/address\n"},
	} {
		if got := Fold(tc.text, tc.width); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
