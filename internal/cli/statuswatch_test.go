package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hinshun/vt10x"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
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
	c := &console{stdout: out, stderr: out, environment: map[string]string{}, workDir: t.TempDir(),
		hide: &redact.Redactor{}, size: sized(0, 0)}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- c.execute(ctx, []string{"status", "--watch", "--state-dir", t.TempDir()}) }()
	select {
	case <-out.wrote:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is shown")
	}
	cancel(flow.ErrInterrupted)
	select {
	case code := <-ended:
		if code != ExitDone {
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
	c := &console{stdout: &raw, size: sized(40, 10)}
	drawn := 0
	show := func(text string) string {
		drawn = showStatus(c, text, false, drawn)
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
	if got := show(strings.Repeat("line\n", 30)); strings.Count(got, "line\n") != 8 ||
		!strings.HasSuffix(got, "\n… 22 more lines") {
		t.Errorf("of what is too long for the screen there is\n%s", got)
	}
	if got, want := show("three "+strings.Repeat("long ", 20)), "three "+strings.Repeat("long ", 6)+"lo…"; got != want {
		t.Errorf("of a long line there is\n%s\nnot\n%s", got, want)
	}
}

// small is a status of which a usual terminal cannot show all.
func small() status.Report {
	r := status.Report{State: "/a/folder", Notes: []string{},
		Now: &status.Overview{Sentence: "waiting for the control plane: 1 of 3 nodes is Ready; server-2: its Talos does " +
			"not " +
			"answer"}}
	for i := range 19 {
		s := status.Step{Step: fmt.Sprintf("step-%d.", i), State: "done", Verified: "holds"}
		switch {
		case i < 5:
			s.Verified, s.Sealed = "", "pivot"
		case i == 14:
			s.State, s.Verified, s.Said = "started", "", "1 of 3 nodes is Ready"
		case i > 14:
			s.State, s.Verified = "never", ""
		}
		r.Steps = append(r.Steps, s)
	}
	for i := range 9 {
		r.Now.Servers = append(r.Now.Servers, status.Server{Name: fmt.Sprintf("server-%d", i), State: "running"})
	}
	return r
}

// On a terminal of the usual size a watch shows what is waited for, and the steps that are not done.
func TestWatchOnASmallTerminal(t *testing.T) {
	var text, raw bytes.Buffer
	if err := small().PrintWatched(&text, 80, 23); err != nil {
		t.Fatal(err)
	}
	screen := vt10x.New(vt10x.WithSize(80, 24))
	c := &console{stdout: &raw, size: sized(80, 24)}
	showStatus(c, text.String(), false, 0)
	_, _ = screen.Write([]byte(strings.ReplaceAll(raw.String(), "\n", "\r\n")))
	seen := screen.String()
	for _, want := range []string{"waiting for the control plane", "server-2: its Talos does",
		"14 of 19 steps done", "step-14.", "step-18.", "more lines"} {
		if !strings.Contains(seen, want) {
			t.Errorf("it does not show %q", want)
		}
	}
	if strings.Contains(seen, "step-4.") || strings.Contains(seen, "step-13.") {
		t.Error("it shows what is done")
	}
	if t.Failed() {
		t.Logf("the screen:\n%s", seen)
	}

	// Where there is room, nothing is left out.
	var all, roomy bytes.Buffer
	if err := errors.Join(small().Print(&all, 80), small().PrintWatched(&roomy, 80, 100)); err != nil ||
		all.String() != roomy.String() {
		t.Errorf("on a high terminal, %v:\n%s", err, roomy.String())
	}
}

// What is done and was changed is no step to be passed over in silence.
func TestWatchShowsWhatWouldRunAgain(t *testing.T) {
	r := small()
	r.Steps[7].Changed, r.Steps[8].Verified, r.Steps[8].Reason = []string{"version"}, "gone", "the object was deleted"
	var text bytes.Buffer
	if err := r.PrintWatched(&text, 80, 23); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"12 of 19 steps done", "step-7.", "step-8."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it does not show %q:\n%s", want, text.String())
		}
	}
}

// The first thing that a watch says is what is waited for, whatever there is to say of the steps.
func TestWatchBeginsWithWhatIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	recordStep(t, statedir.Dir(filepath.Join(dir, ".slipway", "k8s")), "preflight")
	c := &console{environment: settings.Environ(strings.Fields(inProject(newMarket(t)))), workDir: dir,
		hide: &redact.Redactor{}, size: sized(80, 24)}
	a, err := parseArguments([]string{"status", "--watch"})
	a.WorkDir = c.workDir
	if err != nil {
		t.Fatal(err)
	}
	text, err := statusText(t.Context(), &call{console: c, arguments: a})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(text, "\n"); len(lines) < 24 ||
		!strings.Contains(strings.Join(lines[:22], "\n"), "waiting for the management cluster") {
		t.Errorf("it says\n%s", text)
	}
}
