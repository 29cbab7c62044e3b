package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hinshun/vt10x"
)

func sized(columns, rows int) func() (int, int) { return func() (int, int) { return columns, rows } }

// noted is a writer that tells when something was written.
type noted struct {
	mu    sync.Mutex
	all   bytes.Buffer
	wrote chan struct{}
}

func (n *noted) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.wrote <- struct{}{}:
	default:
	}
	return n.all.Write(p)
}

// An interruption is how a watch ends: in good order, after one block of what has not changed.
func TestWatchEndsWithAnInterruption(t *testing.T) {
	out := &noted{wrote: make(chan struct{}, 1)}
	c := &command{stdout: out, stderr: out, environment: map[string]string{}, workDir: t.TempDir(), hide: &redactor{}, size: sized(0, 0)}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- c.execute(ctx, []string{"status", "--watch", "--state-dir", t.TempDir()}) }()
	select {
	case <-out.wrote:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is shown")
	}
	cancel(&interruption{os.Interrupt})
	select {
	case code := <-ended:
		if code != exitDone {
			t.Errorf("it ends with %d", code)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	text := out.all.String()
	if strings.Count(text, "wait-nodes") != 1 || strings.Contains(text, "\x1b") {
		t.Errorf("a pipe gets:\n%s", text)
	}
	if _, err := time.Parse(time.RFC3339, strings.SplitN(text, "\n", 2)[0]); err != nil {
		t.Errorf("the block does not begin with its time: %v", err)
	}
}

// On a terminal a new status takes the place of the old one, however long either is, and no line is broken.
func TestWatchRedraws(t *testing.T) {
	screen := vt10x.New(vt10x.WithSize(40, 10))
	var raw bytes.Buffer
	c := &command{stdout: &raw, size: sized(40, 10)}
	drawn := 0
	show := func(text string) string {
		drawn = c.show(text, false, drawn)
		_, _ = screen.Write([]byte(strings.ReplaceAll(raw.String(), "\n", "\r\n"))) // as a terminal's driver does
		raw.Reset()
		var lines []string
		for line := range strings.Lines(screen.String()) {
			lines = append(lines, strings.TrimRight(line, " \n"))
		}
		return strings.TrimRight(strings.Join(lines, "\n"), "\n")
	}
	show("one\ntwo\nthree " + strings.Repeat("long ", 20) + "\nfour\n")
	if got, want := show("uno\ndue\n"), "uno\ndue"; got != want {
		t.Errorf("on the screen is\n%s", got)
	}
	if got := show(strings.Repeat("line\n", 30)); strings.Count(got, "line") != 9 {
		t.Errorf("of what is too long for the screen there is\n%s", got)
	}
	if got, want := show("three "+strings.Repeat("long ", 20)), "three "+strings.Repeat("long ", 6)+"lo…"; got != want {
		t.Errorf("of a long line there is\n%s\nnot\n%s", got, want)
	}
}
