package effect

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
)

// commands are what hcloudimages says right before it runs a command on its temporary server, and what the command is.
// Its SSH connection is its own: what it logs is the only place to record it.
var commands = map[string]string{
	"# Step 6: Cleaning existing disk":                       "blkdiscard",
	"running download, decompress and write to disk command": "write-image",
	"# Step 8: Shutting down server":                         "shutdown",
}

// SSHCommands hands on what hcloudimages logs and writes down the commands that it speaks of. end is called when the
// library has returned, with its error.
func (r *Recorder) SSHCommands(next slog.Handler) (handler slog.Handler, end func(error)) {
	if r == nil {
		return next, func(error) {}
	}
	w := &sshWatch{recorder: r}
	return Hearing{next, w.hear}, w.end
}

type sshWatch struct {
	recorder *Recorder
	mu       sync.Mutex
	call     *Call // of the command that runs
}

func (w *sshWatch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call.End(err)
	w.call = nil
}

func (w *sshWatch) hear(ctx context.Context, record slog.Record) {
	// Whatever is said next is said after the command. A failed one is reported by the library's error, or by a warning.
	var err error
	if record.Level >= slog.LevelWarn {
		err = errors.New(record.Message)
	}
	w.end(err)
	if command, ok := commands[strings.TrimSpace(record.Message)]; ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.call = w.recorder.Begin(ctx, SSH, "run", command)
	}
}

// Hearing is a slog.Handler that tells of every record before it hands it on.
type Hearing struct {
	slog.Handler
	Hear func(context.Context, slog.Record)
}

// Handle implements slog.Handler.
func (h Hearing) Handle(ctx context.Context, record slog.Record) error {
	h.Hear(ctx, record)
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h Hearing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Hearing{h.Handler.WithAttrs(attrs), h.Hear}
}

// WithGroup implements slog.Handler.
func (h Hearing) WithGroup(name string) slog.Handler {
	return Hearing{h.Handler.WithGroup(name), h.Hear}
}
