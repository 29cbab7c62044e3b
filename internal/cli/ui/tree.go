// Package ui shows a run as a tree on a terminal while it happens.
package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// stepState is how far a step is, for a person who watches.
type stepState int

const (
	stepComing stepState = iota
	stepRunning
	stepDone
	stepReused
	stepSkipped
	stepFailed
	stepInterrupted
)

// treeStep is a step on the screen.
type treeStep struct {
	session.ExpectedStep
	state stepState
	began time.Time
	took  time.Duration
	said  string
}

// tree is what a person sees of a run: every step that is wanted, its state, how
// long it has taken and is expected to take, and under each that is at work what
// it does or waits for. It is changed by events, and draws itself.
type tree struct {
	colour bool
	steps  []*treeStep
	// announced reports that the steps of the run are known. Others are shown while they are at work.
	announced bool
}

// Expect announces the steps of a run.
func (t *tree) Expect(all []session.ExpectedStep) {
	t.announced = true
	for _, s := range all {
		t.steps = append(t.steps, &treeStep{ExpectedStep: s})
	}
}

func (t *tree) find(name string) *treeStep {
	if i := slices.IndexFunc(t.steps, func(s *treeStep) bool { return s.Name == name }); i >= 0 {
		return t.steps[i]
	}
	return nil
}

func (t *tree) running() int {
	n := 0
	for _, s := range t.steps {
		if s.state == stepRunning {
			n++
		}
	}
	return n
}

// apply takes an event in. What it returns is not part of the tree and stays above it: a note, and the end of a step
// that was not announced.
func (t *tree) apply(e flow.Event) row {
	message := text.Printable(e.Message)
	s := t.find(e.Step)
	switch e.Kind {
	case runs.NoteEvent:
		return row{mark: "!", style: styleYellow, columns: " ", text: message}
	case flow.RunStarted:
		return row{}
	case flow.StepVerifying, flow.StepStarted:
		if s == nil {
			s = &treeStep{ExpectedStep: session.ExpectedStep{Name: e.Step}}
			t.steps = append(t.steps, s)
		}
		s.state, s.began, s.said = stepRunning, e.Time, cmp.Or(message, "checking what is there")
		return row{}
	case flow.StepProgress:
		if s != nil {
			s.said = briefly(e.Step, message)
		}
		return row{}
	}
	state, ends := map[flow.EventKind]stepState{
		flow.StepDone: stepDone, flow.StepReused: stepReused, flow.StepSkipped: stepSkipped, flow.StepFailed: stepFailed,
		flow.StepInterrupted: stepInterrupted,
	}[e.Kind]
	if !ends {
		return row{}
	}
	if s == nil && t.announced && state == stepSkipped {
		return row{} // it was not announced as it is not to be done
	}
	ended := &treeStep{ExpectedStep: session.ExpectedStep{Name: e.Step}}
	if s != nil {
		ended = s
	}
	ended.state, ended.took, ended.said = state, e.Elapsed, ""
	if state == stepSkipped {
		ended.said = message
	}
	if t.announced && s != nil {
		return row{}
	}
	t.steps = slices.DeleteFunc(t.steps, func(o *treeStep) bool { return o == s })
	return ended.row(max(widestName, len(e.Step)), "", time.Time{})
}

// ended are the rows of all steps that came to an end, for the time after.
func (t *tree) ended() []row {
	var rows []row
	wide := t.wide()
	for _, s := range t.steps {
		if s.state > stepRunning && s.state != stepSkipped {
			rows = append(rows, s.row(wide, "", time.Time{}))
		}
	}
	return append(rows, t.skipped(wide)...)
}

// skipped are the rows of the steps that were skipped: one for all with the same reason, which comes before their
// names.
func (t *tree) skipped(wide int) []row {
	var why session.SkipReasons
	for _, s := range t.steps {
		if s.state == stepSkipped {
			why.Add(s.said, s.Name)
		}
	}
	var rows []row
	for reason, names := range why.All() {
		r := row{mark: "-", style: styleDim, columns: columns(wide, names[0], ""), text: "skipped: " + reason}
		if len(names) > 1 {
			r.columns, r.text = " ", session.SkippedTogether(reason, names)
		}
		rows = append(rows, r)
	}
	return rows
}

// wide is how many columns the longest name of a step takes.
func (t *tree) wide() int {
	wide := widestName
	for _, s := range t.steps {
		wide = max(wide, len(s.Name))
	}
	return wide
}

// row is the step's first line, with so many columns for its name.
func (s *treeStep) row(wide int, spinner string, now time.Time) row {
	r := row{columns: columns(wide, s.Name, text.Elapsed(s.took))}
	switch s.state {
	case stepComing:
		r.mark, r.style, r.columns, r.text = "·", styleDim, columns(wide, s.Name, ""), s.estimate()
	case stepRunning:
		r.mark, r.columns, r.text = spinner, columns(wide, s.Name, text.Elapsed(now.Sub(s.began))), s.estimate()
	case stepDone:
		r.mark, r.style, r.text = "✓", styleGreen, "done"
	case stepReused:
		r.mark, r.style, r.text = "✓", styleGreen, "as it was"
	case stepSkipped:
		r.mark, r.style, r.columns, r.text = "-", styleDim, columns(wide, s.Name, ""), "skipped: "+s.said
	case stepFailed:
		r.mark, r.style, r.text = "✗", styleRed, "failed"
	case stepInterrupted:
		r.mark, r.style, r.text = "!", styleYellow, "interrupted"
	}
	return r
}

// estimate is "of 15s", or "of ~15s" where that is no record, as a plan has it.
func (s *treeStep) estimate() string {
	if s.Takes == 0 {
		return ""
	}
	about := strings.Replace(text.Elapsed(s.Takes), ".0s", "s", 1)
	if !s.Recorded {
		about = "~" + about
	}
	if s.state == stepComing {
		return about
	}
	return "of " + about
}

// spinners are the marks of a step at work, one after another.
const spinners = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

// under is the line below a running step.
const under = "    "

// frame draws the tree into a terminal of so many columns and rows. Where it does
// not fit, the steps that are done and those to come become one line each, then
// sentences lose their further lines. No line fills the width.
func (t *tree) frame(width, height, tick int, now time.Time) []string {
	room := max(1, height-1) // the last line is the cursor's
	for _, d := range []density{{sentence: linesOfAStep}, {sentence: linesOfAStep, done: true}, {linesOfAStep, true, true},
		{1, true, true}, {0, true, true}} {
		if lines := t.draw(width, tick, now, d); len(lines) <= room || d.sentence == 0 {
			return lines[:min(room, len(lines))]
		}
	}
	return nil
}

// density is how much of the tree is drawn.
type density struct {
	sentence     int  // most lines of what a step says
	done, coming bool // these are one line
}

func (t *tree) draw(width, tick int, now time.Time, d density) []string {
	spinner := string([]rune(spinners)[tick%len([]rune(spinners))])
	var lines []string
	var done int
	var coming []string
	wide := t.wide()
	for _, s := range t.steps {
		switch {
		case s.state == stepSkipped && !d.done:
			continue
		case s.state > stepRunning && d.done:
			done++
			continue
		case s.state == stepComing && d.coming:
			coming = append(coming, s.Name)
			continue
		}
		r := s.row(wide, spinner, now)
		lines = append(lines, t.paint(r, r.one(width)))
		if s.state == stepRunning && s.said != "" && d.sentence > 0 {
			for _, line := range sentenceLines(s.said, width, d.sentence) {
				lines = append(lines, under+line)
			}
		}
	}
	if !d.done {
		for _, r := range t.skipped(wide) {
			lines = append(lines, t.paint(r, r.one(width)))
		}
	}
	if done > 0 {
		r := row{mark: "✓", style: styleGreen, columns: fmt.Sprintf(" %d of %d steps done", done, len(t.steps))}
		lines = slices.Insert(lines, 0, t.paint(r, r.one(width)))
	}
	if len(coming) > 0 {
		r := row{mark: "·", style: styleDim, columns: fmt.Sprintf(" %d to come: %s", len(coming), strings.Join(coming, ", "))}
		lines = append(lines, t.paint(r, r.one(width)))
	}
	return lines
}

// sentenceLines are the lines under a step: each cause begins one. With too many causes for most lines each has one
// line.
func sentenceLines(said string, width, most int) []string {
	room := width - 1 - len(under)
	if room < text.Narrowest/2 {
		return []string{text.Cut(said, max(1, room))}
	}
	causes := text.Causes(said, room)
	each := max(1, most-len(causes)+1)
	var lines []string
	for _, cause := range causes {
		if len(lines) == most {
			lines[most-1] = text.Cut(lines[most-1]+" …", room)
			break
		}
		cause := text.Wrap(cause, room, room, min(each, most-len(lines)))
		each = max(1, each-len(cause)+1)
		lines = append(lines, cause...)
	}
	return lines
}

// one is the row in one line that does not fill the width.
func (r row) one(width int) string {
	return text.Cut(strings.TrimRight(r.mark+r.columns+r.text, " "), max(1, width-1))
}

// paint colours the mark of a row, and the whole of one that is no news.
func (t *tree) paint(r row, line string) string {
	if !t.colour || r.style == "" {
		return line
	}
	if r.style == styleYellow || r.style == styleDim {
		return r.style + line + StyleReset
	}
	if rest, first := strings.CutPrefix(line, r.mark); first {
		return r.style + r.mark + StyleReset + rest
	}
	return line
}

// row is something on the screen: a mark, columns, and beside them a text that continues in further lines where it is
// long.
type row struct {
	mark, style string // style is the mark's colour
	columns     string
	text        string
}

const besideFrom = 90 // columns; a text with fewer beside its row's columns continues below them, where more fits

const indentNarrow = 4

// lines writes the row in at most so many lines (0: in as many as it takes),
// none of which fills the width: some terminals wrap a line that does.
func (r row) lines(width, most int) []string {
	if r.mark == "" {
		return nil
	}
	head := r.mark + r.columns
	room := width - 1
	if room < text.Narrowest {
		return []string{head + r.text}
	}
	taken := utf8.RuneCountInString(head)
	indent := taken
	if room-taken < besideFrom {
		indent = min(taken, indentNarrow)
	}
	lines := text.Wrap(r.text, room-taken, room-indent, most)
	for i, line := range lines {
		if i > 0 {
			lines[i] = strings.Repeat(" ", indent) + line
			continue
		}
		if line == "" {
			head = text.Cut(strings.TrimRight(head, " "), room)
		}
		lines[i] = head + line
	}
	return lines
}
