package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/flow"
)

// Control sequences of every terminal in use.
const (
	clearLine   = "\r\x1b[2K"
	cursorUp    = "\x1b[1A"
	styleDim    = "\x1b[2m"
	styleGreen  = "\x1b[32m"
	styleRed    = "\x1b[31m"
	styleYellow = "\x1b[33m"
	styleReset  = "\x1b[0m"
)

// redrawEvery is how often the running steps' clocks move.
const redrawEvery = 200 * time.Millisecond

// linesOfAStep is the most lines that a running step takes.
const linesOfAStep = 3

// terminalDisplay shows finished steps as lines that stay and, below them, every
// running step, with what it waits for and for how long.
type terminalDisplay struct {
	out    io.Writer
	size   func() (columns, rows int)
	colour bool
	now    func() time.Time

	mu      sync.Mutex
	running []*runningStep
	drawn   []int // columns of each line below the ones that stay
	frame   int
	stop    chan struct{}
	stopped sync.WaitGroup
}

type runningStep struct {
	name  string
	began time.Time
	said  string
}

func newTerminalDisplay(out io.Writer, size func() (columns, rows int), colour bool) *terminalDisplay {
	d := &terminalDisplay{out: out, size: size, colour: colour, now: time.Now, stop: make(chan struct{})}
	d.stopped.Go(d.tick)
	return d
}

func (d *terminalDisplay) tick() {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-ticker.C:
			d.mu.Lock()
			if len(d.running) > 0 {
				d.frame++
				d.draw(row{})
			}
			d.mu.Unlock()
		}
	}
}

func (d *terminalDisplay) close() {
	close(d.stop)
	d.stopped.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
	d.draw(row{})
}

func (d *terminalDisplay) event(e flow.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draw(d.apply(e))
}

// apply changes what runs and returns the row that stays, if any. Of a step that
// is done nothing stays of what it said while it waited.
func (d *terminalDisplay) apply(e flow.Event) row {
	message := printable(e.Message)
	ended := func(mark, style, outcome string) row {
		d.forget(e.Step)
		return row{mark: mark, style: style, columns: columns(e.Step, elapsed(e.Elapsed)), text: outcome}
	}
	switch e.Kind {
	case noteEvent:
		return row{mark: "!", style: styleYellow, columns: " ", text: message}
	case flow.StepVerifying:
		d.running = append(d.running, &runningStep{name: e.Step, began: e.Time, said: "checking what is there"})
	case flow.StepStarted:
		d.forget(e.Step)
		d.running = append(d.running, &runningStep{name: e.Step, began: e.Time, said: message})
	case flow.StepProgress:
		for _, s := range d.running {
			if s.name == e.Step {
				s.said = briefly(e.Step, message)
			}
		}
	case flow.StepDone:
		return ended("✓", styleGreen, "done")
	case flow.StepReused:
		return ended("✓", styleGreen, "as it was")
	case flow.StepSkipped:
		d.forget(e.Step)
		return row{mark: "-", style: styleDim, columns: columns(e.Step, ""), text: "skipped: " + message}
	case flow.StepFailed:
		return ended("✗", styleRed, "failed")
	case flow.StepInterrupted:
		return ended("!", styleYellow, "interrupted")
	}
	return row{}
}

func (d *terminalDisplay) forget(step string) {
	d.running = slices.DeleteFunc(d.running, func(s *runningStep) bool { return s.name == step })
}

func columns(step, took string) string { return fmt.Sprintf(" %-14s %8s  ", step, took) }

// briefly leaves out of "waiting for WHAT: …" what only repeats the step's name.
func briefly(step, said string) string {
	what, rest, found := strings.Cut(strings.TrimPrefix(said, "waiting for "), ": ")
	if !found || !strings.HasPrefix(said, "waiting for ") {
		return said
	}
	known := append(strings.Split(step, "-"), "the")
	if slices.Contains(known, "cp") {
		known = append(known, "control", "plane")
	}
	for _, word := range strings.Fields(what) {
		if !slices.Contains(known, word) {
			return said
		}
	}
	return rest
}

// draw replaces the moving lines, after a row that stays. All in one write, so
// that nothing flickers.
func (d *terminalDisplay) draw(stays row) {
	width, height := d.size()
	var b strings.Builder
	b.WriteString("\r")
	for _, columns := range d.drawn {
		// A terminal that became narrower since has wrapped its lines itself.
		for range max(1, (columns+width-1)/max(1, width)) {
			b.WriteString(cursorUp + clearLine)
		}
	}
	d.drawn = nil
	for _, line := range stays.lines(width, 0) {
		b.WriteString(d.paint(stays, line) + "\n")
	}
	room := max(1, height-1) // the cursor cannot go back above the screen
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for _, s := range d.running {
		r := row{mark: string(spinner[d.frame%len(spinner)]), columns: columns(s.name, elapsed(d.now().Sub(s.began))), text: s.said}
		for _, line := range r.lines(width, min(linesOfAStep, max(1, room/len(d.running)))) {
			if len(d.drawn) < room {
				b.WriteString(line + "\n")
				d.drawn = append(d.drawn, utf8.RuneCountInString(line))
			}
		}
	}
	_, _ = io.WriteString(d.out, b.String())
}

// paint colours the mark of a row that stays, and the whole of a note or of a
// step that was skipped.
func (d *terminalDisplay) paint(r row, line string) string {
	if !d.colour {
		return line
	}
	if r.style == styleYellow || r.style == styleDim {
		return r.style + line + styleReset
	}
	if rest, first := strings.CutPrefix(line, r.mark); first {
		return r.style + r.mark + styleReset + rest
	}
	return line
}
