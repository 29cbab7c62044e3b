package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
)

// watchEvery is the time between two looks of status --watch. A look asks Hetzner some ten times, whose limit is 3600
// requests an hour.
const watchEvery = 10 * time.Second

// watchStatus shows the status again whenever it has changed, until it is interrupted. On a terminal the new one takes
// the place of the old; in a pipe each is a block with its time.
func watchStatus(ctx context.Context, c *call) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last, drawn := "", 0
	for {
		text, err := statusText(ctx, c)
		if ctx.Err() != nil {
			return watchEnded(ctx)
		}
		if err != nil {
			return err
		}
		if text != last {
			last = text
			drawn = showStatus(c.console, text, c.Output == "json", drawn)
		}
		select {
		case <-ctx.Done():
			return watchEnded(ctx)
		case <-tick.C:
		}
	}
}

// watchEnded: an interruption is how a watch ends, and no failure.
func watchEnded(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, flow.ErrInterrupted) {
		return err
	}
	return nil
}

func statusText(ctx context.Context, c *call) (string, error) {
	r, err := readStatus(ctx, c)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	columns, rows := c.size()
	switch {
	case c.Output == "json":
		err = ui.PrintJSONLine(&b, r)
	case columns > 0:
		err = r.PrintWatched(&b, columns, rows-1) // the cursor has the last one
	default:
		err = r.Print(&b, 0)
	}
	return b.String(), err
}

// showStatus writes one status and returns how many lines of a terminal it took.
func showStatus(c *console, words string, json bool, drawn int) int {
	columns, rows := c.size()
	switch {
	case json:
		fmt.Fprint(c.stdout, words)
		return 0
	case columns == 0:
		fmt.Fprintf(c.stdout, "%s\n%s\n", time.Now().Format(time.RFC3339), words)
		return 0
	}
	lines := strings.Split(strings.TrimRight(words, "\n"), "\n")
	if room := max(1, rows-1); len(lines) > room { // the cursor has the last one
		lines = append(lines[:room-1], fmt.Sprintf("… %d more lines", len(lines)-room+1))
	}
	var b strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", drawn) // up
	}
	b.WriteString(ui.ClearBelow)
	for _, line := range lines {
		b.WriteString(text.Cut(line, max(1, columns-1)) + "\n")
	}
	fmt.Fprint(c.stdout, b.String())
	return len(lines)
}
