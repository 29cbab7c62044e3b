package hetzner

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// uploadLog listens to hcloudimages: what a person waits for is an Info record "# Step 7: …", what a command on the
// temporary server wrote is a Debug record of its own.
type uploadLog struct {
	progress func(string)

	mu     sync.Mutex
	output string // the last Debug record's text
}

// logger hands the records on to a log.
func (l *uploadLog) logger(log io.Writer) *slog.Logger {
	return slog.New(effect.Hearing{Handler: slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}),
		Hear: l.hear})
}

// lastOutput is what the last command wrote, in one line.
func (l *uploadLog) lastOutput() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(strings.Fields(l.output), " ")
}

func (l *uploadLog) hear(_ context.Context, r slog.Record) {
	switch {
	case r.Level == slog.LevelDebug:
		l.mu.Lock()
		l.output = r.Message
		l.mu.Unlock()
	case r.Level > slog.LevelInfo:
		l.progress(warning(r))
	case strings.HasPrefix(r.Message, "# Step "):
		l.progress(strings.TrimPrefix(r.Message, "# "))
	}
}

// warning is a record with its error.
func warning(r slog.Record) string {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "err" {
			text += fmt.Sprintf(": %v", a.Value)
		}
		return true
	})
	return text
}
