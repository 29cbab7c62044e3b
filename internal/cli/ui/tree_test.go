package ui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/session"
)

// halfway is a tree in the middle of a run: something of every state, and long sentences.
func halfway() (*tree, time.Time) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	t := &tree{}
	second := func(name string, takes float64, recorded bool) session.ExpectedStep {
		return session.ExpectedStep{Name: name, Takes: time.Duration(takes * float64(time.Second)), Recorded: recorded}
	}
	t.Expect([]session.ExpectedStep{
		second("preflight", 0.1, true), second("image", 0, false), second("kind-create", 60, false),
		second("capi-init", 120, false), second("apply", 20, true),
		second("wait-cp", 240, true), second("kubeconfig", 60, false), second("talosconfig", 60, true),
		second("cilium", 90, true), second("hcloud-ccm", 30, true),
		second("talos-ccm", 30, true), second("wait-nodes", 30, true),
	})
	for _, e := range []flow.Event{
		{Kind: flow.RunStarted},
		{Kind: flow.StepStarted, Step: "preflight"},
		{Kind: flow.StepDone, Step: "preflight", Elapsed: 110 * time.Millisecond},
		{Kind: flow.StepVerifying, Step: "image"}, {Kind: flow.StepReused, Step: "image", Elapsed: 40 * time.Millisecond},
		{Kind: flow.StepStarted, Step: "kind-create"}, {Kind: flow.StepDone, Step: "kind-create", Elapsed: 61 * time.Second},
		{Kind: flow.StepStarted, Step: "capi-init"}, {Kind: flow.StepDone, Step: "capi-init", Elapsed: 97 * time.Second},
		{Kind: flow.StepStarted, Step: "apply"}, {Kind: flow.StepDone, Step: "apply", Elapsed: 18 * time.Second},
		{Kind: flow.StepStarted, Step: "wait-cp", Message: "it has not run yet"},
		{Kind: flow.StepProgress, Step: "wait-cp", Message: "waiting for etcd: 2 of 3 servers run; " +
			"k8s-control-plane-x7k2p: server type cx33 is out of stock in nbg1 (CAPH tries again within 4 min)"},
		{Kind: flow.StepStarted, Step: "kubeconfig", Message: "it has not run yet"},
		{Kind: flow.StepProgress, Step: "kubeconfig", Message: "waiting for Secret k8s-kubeconfig: it does not exist yet; " +
			"etcd: 2 of 3 servers run; k8s-control-plane-x7k2p: server type cx33 is out of stock in nbg1 (CAPH tries again " +
			"within 4 min)"},
		{Kind: flow.StepVerifying, Step: "talosconfig"},
		{Kind: flow.StepFailed, Step: "talosconfig", Elapsed: 3 * time.Second, Err: "no way"},
		{Kind: flow.StepInterrupted, Step: "cilium", Message: "waiting"},
		{Kind: flow.StepSkipped, Step: "hcloud-ccm", Message: "another step failed, so that what hangs on it cannot be " +
			"done either"},
	} {
		e.Time = at
		t.apply(e)
	}
	return t, at.Add(83 * time.Second)
}

// TestFrames holds what is drawn on terminals of several sizes to what was looked at once.
func TestFrames(t *testing.T) {
	var all strings.Builder
	for _, size := range []struct{ columns, rows int }{{40, 40}, {80, 40}, {200, 40}, {80, 12}, {80, 6}, {40, 3},
		{12, 24}} {
		tr, now := halfway()
		fmt.Fprintf(&all, "%d columns, %d rows\n", size.columns, size.rows)
		for _, line := range tr.frame(size.columns, size.rows, 2, now) {
			all.WriteString(line + "\n")
		}
		all.WriteString("\n")
	}
	path := filepath.Join("testdata", "frames.txt")
	if *update {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != all.String() {
		t.Errorf("%v, drawn is (-update writes it):\n%s", err, all.String())
	}
}

// TestFramesFit draws on every size: no line fills the width, the lines fit above the cursor, and as long as there is room for a line of
// each, what runs is to be seen.
func TestFramesFit(t *testing.T) {
	for width := 8; width < 220; width += 3 {
		for height := 2; height < 50; height++ {
			tr, now := halfway()
			lines := tr.frame(width, height, 0, now)
			if len(lines) > height-1 || len(lines) == 0 {
				t.Fatalf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n >= width {
					t.Fatalf("%dx%d: a line of %d: %q", width, height, n, line)
				}
			}
			if text := strings.Join(lines, "\n"); width > 30 && height > 6 &&
				(!strings.Contains(text, "wait-cp") || !strings.Contains(text, "kubeconfig")) {
				t.Fatalf("%dx%d does not show what runs:\n%s", width, height, text)
			}
		}
	}
}

// A step that was not announced is shown while it is at work, and its end stays.
func TestTreeOfTasks(t *testing.T) {
	tr := &tree{}
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	tr.apply(flow.Event{Time: at, Kind: flow.StepStarted, Step: "lab",
		Message: "the simulated environment of a rehearsal"})
	tr.apply(flow.Event{Time: at, Kind: flow.StepProgress, Step: "lab", Message: "etcd is starting"})
	if got := tr.frame(60, 24, 0, at.Add(time.Second)); len(got) != 2 || !strings.Contains(got[0], "lab") ||
		!strings.Contains(got[1], "etcd is starting") {
		t.Errorf("at work: %q", got)
	}
	stays := tr.apply(flow.Event{Time: at, Kind: flow.StepDone, Step: "lab", Elapsed: 3 * time.Second})
	if got := stays.lines(60, 0); len(got) != 1 || !strings.HasPrefix(got[0], "✓ lab") || tr.running() != 0 ||
		len(tr.steps) != 0 {
		t.Errorf("then: %q, and %d steps", got, len(tr.steps))
	}
}

// What is passed over was not announced, and is no news.
func TestTreeOfWhatIsPassedOver(t *testing.T) {
	tr, now := halfway()
	if got := tr.apply(flow.Event{Time: now, Kind: flow.StepSkipped, Step: "reserve", Message: "it lies before pivot, a " +
		"point of no return that was passed"}); got.mark != "" {
		t.Errorf("it says %q", got.lines(80, 0))
	}
}

// With colours or without, the letters are the same.
func TestTreeColours(t *testing.T) {
	tr, now := halfway()
	plain := strings.Join(tr.frame(100, 40, 0, now), "\n")
	tr.colour = true
	painted := strings.Join(tr.frame(100, 40, 0, now), "\n")
	if !strings.Contains(painted, styleGreen) || strings.Contains(plain, "\x1b") {
		t.Errorf("painted:\n%q\nplain:\n%q", painted, plain)
	}
	for _, style := range []string{styleDim, styleGreen, styleRed, styleYellow, StyleReset} {
		painted = strings.ReplaceAll(painted, style, "")
	}
	if painted != plain {
		t.Errorf("without its colours it is\n%s\nand not\n%s", painted, plain)
	}
}
