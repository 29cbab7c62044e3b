package steps

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
)

func TestRetry(t *testing.T) {
	broken := &url.Error{Op: "Get", URL: "https://charts.example.com", Err: io.EOF}
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, format) }
	tries := 0
	err := retry(t.Context(), say, "the download", func() error {
		if tries++; tries == 1 {
			return broken
		}
		return nil
	})
	if err != nil || tries != 2 || len(lines) != 1 || !strings.Contains(lines[0], "again") {
		t.Errorf("a line that was back: %v after %d tries, said %q", err, tries, lines)
	}
	tries = 0
	wrong := errors.New("no such version")
	if err := retry(t.Context(), say, "the download", func() error { tries++; return wrong }); !errors.Is(err, wrong) || tries != 1 {
		t.Errorf("what no try will mend: %v after %d tries", err, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := retry(ctx, say, "the download", func() error { cancel(); return broken }); !errors.Is(err, broken) {
		t.Errorf("an ended run: %v", err)
	}
}
