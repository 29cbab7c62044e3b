// Package crash ends a run by SIGKILL at a chosen moment of a chosen call, so that tests can show that the next run
// resumes. Only a command that is built with -tags crash imports it: a released binary contains no fault injection.
package crash

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// Place says where a run ends itself. A key that never comes ends nothing.
type Place struct {
	Point effect.Point
	Key   string // as effect.Line.Key writes it
}

// String is as Parse reads it.
func (p Place) String() string { return string(p.Point) + " " + p.Key }

var keyForm = regexp.MustCompile(`^([a-z]+) [^\s]+ [^\s]+#[1-9][0-9]*$`)

// Parse reads lines of "<point> <key>": "applied hetzner create firewalls/k8s#1". Of several places the first one that
// the run reaches ends it. The empty text is none.
func Parse(text string) ([]Place, error) {
	if text == "" {
		return nil, nil
	}
	var all []Place
	for line := range strings.SplitSeq(text, "\n") {
		p, err := parse(line)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func parse(text string) (Place, error) {
	point, key, _ := strings.Cut(text, " ")
	if !slices.Contains(effect.Points(), effect.Point(point)) {
		var known []string
		for _, p := range effect.Points() {
			known = append(known, string(p))
		}
		return Place{}, fmt.Errorf("%s=%q begins with no point: there are %s", effect.CrashVariable, text,
			strings.Join(known, ", "))
	}
	form := keyForm.FindStringSubmatch(key)
	if form == nil {
		return Place{}, fmt.Errorf("%s=%q names no call: write one as effects.jsonl does, \"<system> <verb> <object>#<nth>\"",
			effect.CrashVariable, text)
	}
	if !slices.Contains(effect.Systems(), effect.System(form[1])) {
		return Place{}, fmt.Errorf("%s=%q: there is no system %s", effect.CrashVariable, text, form[1])
	}
	return Place{Point: effect.Point(point), Key: key}, nil
}

// Reader reads the value of effect.CrashVariable and returns what makes the faults of each run: a run has its own.
func Reader(text string) (func() effect.Faults, error) {
	places, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return func() effect.Faults { return New(places) }, nil
}

// Faults ends the process at the first of its places that a run reaches. It implements effect.Faults for one run.
type Faults struct {
	places []Place

	mu    sync.Mutex
	armed *Place // its call was answered, or is the write of the journal that is to be torn
}

// New makes the faults of one run.
func New(places []Place) *Faults { return &Faults{places: places} }

// Reached implements effect.Faults.
func (f *Faults) Reached(point effect.Point, line effect.Line) (place string, end bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch point {
	case effect.PointBefore, effect.PointApplied:
		return f.reachedCall(point, line)
	default:
		if f.armedFor(point) {
			return f.armed.String(), true
		}
		return "", false
	}
}

// reachedCall ends the process at a point of the call itself, and is armed by the call for a later point.
func (f *Faults) reachedCall(point effect.Point, line effect.Line) (place string, end bool) {
	i := slices.IndexFunc(f.places, func(p Place) bool { return p.Key == line.Key() })
	if i < 0 {
		return "", false
	}
	p := &f.places[i]
	switch {
	case p.Point == point:
		return p.String(), true
	case point == effect.PointApplied, p.Point == effect.PointTorn && line.System == effect.Journal:
		f.armed = p // a write of the journal is itself the next one
	}
	return "", false
}

func (f *Faults) armedFor(p effect.Point) bool { return f.armed != nil && f.armed.Point == p }

// End implements effect.Faults. What the process started in groups of their own, as the lab, continues.
func (f *Faults) End() {
	pid := syscall.Getpid()
	if syscall.Getpgrp() == pid {
		pid = -pid
	}
	for {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one's own process can always be killed
	}
}

// Disk implements effect.Faults: half of a file's content is written where the process is to end in the middle of it.
func (f *Faults) Disk(disk flow.Disk, torn func()) flow.Disk { return tearingDisk{disk, f, torn} }
