package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/session"
)

// Styles of every terminal in use.
const (
	styleDim    = "\x1b[2m"
	styleGreen  = "\x1b[32m"
	styleRed    = "\x1b[31m"
	styleYellow = "\x1b[33m"
	StyleReset  = "\x1b[0m"
)

// ClearBelow goes to the begin of the line and clears all from there.
const ClearBelow = "\r\x1b[J"

// redrawEvery is how often the running steps' clocks move.
const redrawEvery = 200 * time.Millisecond

// linesOfAStep is the most lines that are shown under a running step.
const linesOfAStep = 4

// terminalDisplay shows a run's tree while something is at work, and leaves it on
// the screen when all has ended. Nothing moves while nothing is at work, so that
// questions can be asked.
type terminalDisplay struct {
	out  io.Writer
	size func() (columns, rows int)
	now  func() time.Time

	mu    sync.Mutex // of what follows; the program reads it, too
	tree  tree
	tick  int
	over  bool // nothing is drawn any more
	graph bool // a graph runs, between whose steps there may be none at work

	program *tea.Program // nil: nothing moves
	ended   chan struct{}
}

func NewTerminalDisplay(out io.Writer, size func() (columns, rows int), colour bool) *terminalDisplay {
	return &terminalDisplay{out: out, size: size, now: time.Now, tree: tree{colour: colour}}
}

// Expect announces the steps of a run.
func (d *terminalDisplay) Expect(all []session.ExpectedStep) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tree.Expect(all)
}

func (d *terminalDisplay) Event(e flow.Event) {
	d.mu.Lock()
	stays := d.tree.apply(e)
	switch e.Kind {
	case flow.RunStarted:
		d.graph = true
	case flow.RunFinished:
		d.graph = false
	}
	working := d.tree.running() > 0
	idle := !working && !d.graph
	d.mu.Unlock()

	if working && d.program == nil {
		d.start()
	}
	d.keep(stays)
	switch {
	case d.program == nil:
	case idle:
		d.stop()
	default:
		d.program.Send(redraw{})
	}
}

// keep writes a row that stays on the screen.
func (d *terminalDisplay) keep(r row) {
	width, _ := d.size()
	for _, line := range r.lines(width, 0) {
		line = d.tree.paint(r, line)
		if d.program != nil {
			d.program.Println(line)
		} else {
			fmt.Fprintln(d.out, line)
		}
	}
}

// start begins to draw. The terminal is only written to: nothing is read from it, so that an interruption stays a
// signal, and it is not asked what it can do, because its answer would be mixed with what a person types.
func (d *terminalDisplay) start() {
	width, height := d.size()
	d.over = false
	d.program = tea.NewProgram(screenModel{d},
		tea.WithOutput(d.out), tea.WithInput(nil), tea.WithoutSignalHandler(), tea.WithWindowSize(width, height),
		// As over SSH, where bubbletea does not ask either.
		tea.WithEnvironment([]string{"TERM=xterm-256color", "SSH_TTY=none"}))
	d.ended = make(chan struct{})
	go func(p *tea.Program) {
		defer close(d.ended)
		_, _ = p.Run() // a terminal that went away is no reason to stop
	}(d.program)
}

// stop takes what moves off the screen and writes what stays.
func (d *terminalDisplay) stop() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.program.Send(redraw{})
	d.program.Quit()
	<-d.ended
	d.program = nil
	fmt.Fprint(d.out, ClearBelow)
	d.mu.Lock()
	rows := d.tree.ended()
	d.tree.steps, d.tree.announced = nil, false
	d.mu.Unlock()
	for _, r := range rows {
		d.keep(r)
	}
}

func (d *terminalDisplay) Close() {
	if d.program != nil {
		d.stop()
	}
}

// screenModel is the display as the library that draws it sees it.
type screenModel struct{ d *terminalDisplay }

// redraw asks for a frame; clock for one, and the next.
type (
	redraw struct{}
	clock  struct{}
)

// Init implements tea.Model.
func (m screenModel) Init() tea.Cmd { return m.next() }

func (m screenModel) next() tea.Cmd {
	return tea.Tick(redrawEvery, func(time.Time) tea.Msg { return clock{} })
}

// Update implements tea.Model.
func (m screenModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, moved := msg.(clock); moved {
		m.d.mu.Lock()
		m.d.tick++
		m.d.mu.Unlock()
		return m, m.next()
	}
	return m, nil
}

// View implements tea.Model. The cursor stays to be seen, so that a process that is killed leaves a terminal as it was.
func (m screenModel) View() tea.View {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.d.over {
		return tea.NewView("")
	}
	width, height := m.d.size()
	lines := m.d.tree.frame(width, height, m.d.tick, m.d.now())
	v := tea.NewView(strings.Join(lines, "\n") + "\n")
	v.Cursor = tea.NewCursor(0, len(lines))
	return v
}

// widestName is how many columns a step's name has at least.
const widestName = 14

func columns(wide int, step, took string) string { return fmt.Sprintf(" %-*s %8s  ", wide, step, took) }

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
