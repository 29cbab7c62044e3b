package effect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Point is a moment of a call at which the process can be made to end by SIGKILL.
type Point string

// The points, in the order in which they come.
const (
	PointBefore  Point = "before"  // the call is written down and has not left
	PointApplied Point = "applied" // the reply is there, nobody has seen it
	PointReplied Point = "replied" // the caller has it; the journal is about to be written, or the next call about to leave, or the run about to end
	PointTorn    Point = "torn"    // half of the next write of the journal is in its temporary file
	PointSaved   Point = "saved"   // that write is whole, in place and flushed
)

// Points lists them.
func Points() []Point { return []Point{PointBefore, PointApplied, PointReplied, PointTorn, PointSaved} }

// CrashVariable is the variable of the environment that ParseCrash reads.
const CrashVariable = "SLIPWAY_CRASH"

// Crash says where a run ends itself. A key that never comes ends nothing.
type Crash struct {
	Point Point
	Key   string // as Line.Key writes it
}

// String is as ParseCrash reads it.
func (c Crash) String() string { return string(c.Point) + " " + c.Key }

var keyForm = regexp.MustCompile(`^([a-z]+) [^\s]+ [^\s]+#[1-9][0-9]*$`)

// ParseCrash reads lines of "<point> <key>": "applied hetzner create firewalls/k8s#1". Of several whichever comes first ends the
// run. The empty text is none.
func ParseCrash(text string) ([]Crash, error) {
	if text == "" {
		return nil, nil
	}
	var all []Crash
	for line := range strings.SplitSeq(text, "\n") {
		c, err := parseCrash(line)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func parseCrash(text string) (Crash, error) {
	point, key, _ := strings.Cut(text, " ")
	if !slices.Contains(Points(), Point(point)) {
		var known []string
		for _, p := range Points() {
			known = append(known, string(p))
		}
		return Crash{}, fmt.Errorf("%s=%q begins with no point: there are %s", CrashVariable, text, strings.Join(known, ", "))
	}
	form := keyForm.FindStringSubmatch(key)
	if form == nil {
		return Crash{}, fmt.Errorf("%s=%q names no call: write one as effects.jsonl does, \"<world> <verb> <object>#<nth>\"", CrashVariable, text)
	}
	if !slices.Contains(worlds, World(form[1])) {
		return Crash{}, fmt.Errorf("%s=%q: there is no world %s", CrashVariable, text, form[1])
	}
	return Crash{Point: Point(point), Key: key}, nil
}

// What follows is called with r.mu held, so that no other call leaves at that moment.

// crashAt is the crash that is wanted of a call; nil: none.
func (r *Recorder) crashAt(line Line) *Crash {
	for i := range r.options.Crash {
		if c := &r.options.Crash[i]; c.Key == line.Key() {
			return c
		}
	}
	return nil
}

func (r *Recorder) crashBefore(line Line) {
	c := r.crashAt(line)
	switch {
	case c == nil:
	case c.Point == PointBefore:
		r.kill(*c)
	case c.Point == PointTorn && line.World == Journal:
		r.armed = c // a write of the journal is itself the next one
	}
}

func (r *Recorder) crashApplied(line Line) {
	c := r.crashAt(line)
	switch {
	case c == nil:
	case c.Point == PointApplied:
		r.kill(*c)
	default:
		r.armed = c
	}
}

func (r *Recorder) crashReplied() {
	if r.armedFor(PointReplied) {
		r.kill(*r.armed)
	}
}

func (r *Recorder) armedFor(p Point) bool { return r.armed != nil && r.armed.Point == p }

// kill writes down at which of several places it was, and ends the process.
func (r *Recorder) kill(c Crash) {
	r.write(Line{Seq: r.seq, Phase: Killed, Error: c.String()})
	killSelf()
}

// Tears tells whoever writes the journal's file to write half of it and call Kill.
func (r *Recorder) Tears() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.armedFor(PointTorn)
}

// Kill ends the process, and its process group where it leads one, after Tears.
func (r *Recorder) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill(*r.armed)
}

// Saved is called after each write of the journal that was flushed.
func (r *Recorder) Saved() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.armedFor(PointSaved) {
		r.kill(*r.armed)
	}
}

// Close is called when the run is over.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crashReplied()
}
