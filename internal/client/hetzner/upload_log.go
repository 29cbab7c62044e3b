package hetzner

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// uploadLog listens to hcloudimages: what a person waits for is an Info record "# Step 7: …", what a command on the
// temporary server wrote is a Debug record of its own.
type uploadLog struct {
	progress func(string)
	file     slog.Handler

	mu     sync.Mutex
	output string // the last Debug record's text
}

func newUploadLog(progress func(string), log io.Writer) *uploadLog {
	return &uploadLog{progress: progress, file: slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})}
}

func (l *uploadLog) logger() *slog.Logger { return slog.New(uploadHandler{l, l.file}) }

// lastOutput is what the last command wrote, in one line.
func (l *uploadLog) lastOutput() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(strings.Fields(l.output), " ")
}

// uploadHandler is a slog.Handler over an uploadLog; file is the log's own with attributes.
type uploadHandler struct {
	log  *uploadLog
	file slog.Handler
}

func (h uploadHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h uploadHandler) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Level == slog.LevelDebug:
		h.log.mu.Lock()
		h.log.output = r.Message
		h.log.mu.Unlock()
	case r.Level > slog.LevelInfo:
		h.log.progress(warning(r))
	case strings.HasPrefix(r.Message, "# Step "):
		h.log.progress(strings.TrimPrefix(r.Message, "# "))
	}
	return h.file.Handle(ctx, r)
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

func (h uploadHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return uploadHandler{h.log, h.file.WithAttrs(attrs)}
}

func (h uploadHandler) WithGroup(name string) slog.Handler {
	return uploadHandler{h.log, h.file.WithGroup(name)}
}
