package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/child"
)

const (
	// outputMost is how much a command that looks may print.
	outputMost = 8 << 20
	// endWithin is how long a command that was interrupted has to end.
	endWithin = 5 * time.Second
	// turnWithin is how long a command waits until one of those before it has ended.
	turnWithin = 10 * time.Second
)

// Ask has a command that changes nothing print its document as JSON. One that found something wrong, as the doctor
// does, may end with an exit code and a document: then the document is the answer.
func (c *cluster) Ask(ctx context.Context, within time.Duration, words ...string) (json.RawMessage, error) {
	select {
	case c.asks <- struct{}{}:
		defer func() { <-c.asks }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(turnWithin):
		return nil, refuse(http.StatusConflict, "%d commands look at cluster %s already: try again later", looksAtOnce,
			c.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := child.Command(ctx, c.Executable, slices.Concat(words, []string{"--output", "json"}, c.Arguments)...)
	out, said := &bounded{most: outputMost}, &bounded{most: 64 << 10}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = endWithin
	err := cmd.Run()
	message := c.Hide.Text(strings.ToValidUTF8(strings.TrimSpace(string(said.data)), "?"))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, refuse(http.StatusGatewayTimeout, "timeout: %s took longer than %s and was ended: %s",
			strings.Join(words, " "), within, message)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case out.cut:
		return nil, fmt.Errorf("%s printed more than %d MB", strings.Join(words, " "), outputMost>>20)
	}
	if document := bytes.TrimSpace(out.data); len(document) > 0 && json.Valid(document) {
		return document, nil
	}
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return nil, &problem{http.StatusUnprocessableEntity, message, ended.ExitCode()}
	}
	if err == nil {
		err = errors.New("it printed no JSON")
	}
	return nil, fmt.Errorf("run %s: %w: %s", strings.Join(words, " "), err, message)
}

// bounded is a buffer that drops what is too much. It is no bytes.Buffer, whose ReadFrom would take everything.
type bounded struct {
	data []byte
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := max(0, b.most-len(b.data))
	b.cut = b.cut || len(p) > room
	b.data = append(b.data, p[:min(len(p), room)]...)
	return len(p), nil
}
