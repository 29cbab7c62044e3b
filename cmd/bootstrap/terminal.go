package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

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

// terminalDisplay shows finished steps as lines that stay and, below them, a
// line for every running step, with what it waits for and for how long.
type terminalDisplay struct {
	out    io.Writer
	width  func() int // columns
	colour bool
	now    func() time.Time

	mu      sync.Mutex
	running []*runningStep
	drawn   int // lines below the ones that stay
	frame   int
	stop    chan struct{}
	stopped sync.WaitGroup
}

type runningStep struct {
	name  string
	began time.Time
	said  string
}

func newTerminalDisplay(out io.Writer, width func() int, colour bool) *terminalDisplay {
	d := &terminalDisplay{out: out, width: width, colour: colour, now: time.Now, stop: make(chan struct{})}
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
				d.draw("")
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
	d.draw("")
}

func (d *terminalDisplay) event(e flow.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draw(d.apply(e))
}

// apply changes what runs and returns the line that stays, if any.
func (d *terminalDisplay) apply(e flow.Event) string {
	message := printable(e.Message)
	switch e.Kind {
	case noteEvent:
		return d.style(styleYellow, "! "+message)
	case flow.StepVerifying:
		d.running = append(d.running, &runningStep{name: e.Step, began: e.Time, said: "checking what is there"})
	case flow.StepStarted:
		d.forget(e.Step)
		d.running = append(d.running, &runningStep{name: e.Step, began: e.Time, said: message})
	case flow.StepProgress:
		for _, s := range d.running {
			if s.name == e.Step {
				s.said = message
			}
		}
	case flow.StepDone:
		d.forget(e.Step)
		return d.style(styleGreen, "✓") + d.columns(e.Step, e.Elapsed) + d.style(styleDim, message)
	case flow.StepReused:
		d.forget(e.Step)
		return d.style(styleGreen, "✓") + d.columns(e.Step, e.Elapsed) + d.style(styleDim, "as it was")
	case flow.StepSkipped:
		d.forget(e.Step)
		return d.style(styleDim, "-"+fmt.Sprintf(" %-14s %8s  ", e.Step, "")+"skipped: "+message)
	case flow.StepFailed:
		d.forget(e.Step)
		return d.style(styleRed, "✗") + d.columns(e.Step, e.Elapsed) + "failed"
	case flow.StepInterrupted:
		d.forget(e.Step)
		return d.style(styleYellow, "!") + d.columns(e.Step, e.Elapsed) + "interrupted"
	}
	return ""
}

func (d *terminalDisplay) forget(step string) {
	d.running = slices.DeleteFunc(d.running, func(s *runningStep) bool { return s.name == step })
}

func (d *terminalDisplay) columns(step string, took time.Duration) string {
	return fmt.Sprintf(" %-14s %8s  ", step, elapsed(took))
}

func (d *terminalDisplay) style(style, text string) string {
	if !d.colour || text == "" {
		return text
	}
	return style + text + styleReset
}

// draw replaces the moving lines, after a line that stays. All in one write, so
// that nothing flickers.
func (d *terminalDisplay) draw(stays string) {
	var b strings.Builder
	b.WriteString("\r")
	for range d.drawn {
		b.WriteString(cursorUp + clearLine)
	}
	if stays != "" {
		b.WriteString(d.cut(stays) + "\n")
	}
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for _, s := range d.running {
		line := string(spinner[d.frame%len(spinner)]) + d.columns(s.name, d.now().Sub(s.began)) + s.said
		b.WriteString(d.cut(line) + "\n")
	}
	d.drawn = len(d.running)
	_, _ = io.WriteString(d.out, b.String())
}

// cut shortens a line to the terminal's width: a line that wraps would be
// counted wrongly when it is taken back. Control sequences take no columns.
func (d *terminalDisplay) cut(line string) string {
	room := d.width() - 1
	if room < 20 {
		return line // no real terminal
	}
	var b strings.Builder
	columns, inside := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			inside = true
		case inside:
			inside = r != 'm'
		case columns == room-1:
			b.WriteString("…")
			if strings.ContainsRune(line, '\x1b') {
				b.WriteString(styleReset)
			}
			return b.String()
		default:
			columns++
		}
		b.WriteRune(r)
	}
	return b.String()
}
