package flow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/slipway-k8s/slipway/flow"
)

// model simulates the outside systems and the disk for runs of a graph, and knows from what it sees them do what they
// may do next and what the journal must say.
type model struct {
	print blueprint
	disk  *simDisk
	spec  []int // of each step, today

	mu      sync.Mutex
	world   *world
	steps   []belief
	run     *simRun
	wrong   []string // what was seen and must not be
	counted *counts
}

// belief is what the model knows of a step's record.
type belief struct {
	is     standing
	spec   int
	inputs map[int]made // of Inputs and RerunAfter
	out    made         // of the last time that it was done
	loose  bool         // the record that made it done, or undone, is not flushed: a power failure may take it back
	next   *belief      // its work has ended well, and whether that is recorded is open
}

type standing string

const (
	undone standing = ""
	done   standing = "done"
)

// simRun is one run with what befalls it.
type simRun struct {
	story
	id      string
	cancel  func()
	moments int
	over    atomic.Bool // the process has ended
	struck  bool        // its trouble came to be

	sealing      // by the seals that were passed when it began
	wanted       map[int]bool
	begun, ended map[int]bool
	answers      map[int]flow.Answer
	inside       map[int]bool // steps at work
}

// counts are for all cases together: what the random cases were like.
type counts struct {
	runs, effects, reused, killed, power, faults, cancels, unknowns, gone, refused, seals, exempt, forgotten atomic.Int64
}

func newModel(print blueprint, c *counts) *model {
	m := &model{print: print, disk: newSimDisk(), spec: make([]int, len(print)), world: newWorld(),
		steps: make([]belief, len(print)), counted: c}
	m.disk.moment = m.moment
	return m
}

func (m *model) notRight(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf("run %s: ", m.run.id)+fmt.Sprintf(format, args...))
}

// moment is a point at which the run's trouble may strike.
func (m *model) moment(call string, w when) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.run
	if r.over.Load() {
		return errDead
	}
	if (call == "sync the folder" || call == "sync the log") && w == after {
		for i := range m.steps {
			m.steps[i].loose = false
		}
	}
	r.moments++
	if r.moments != r.Trouble.At {
		return nil
	}
	r.struck = true
	switch r.Trouble.Kind {
	case kill, power:
		r.over.Store(true)
		r.cancel()
		return errDead
	case fault:
		return errNoSpace
	case cancel:
		r.cancel()
	}
	return nil
}

// passed reports whether a seal was passed.
func (m *model) passed(i int) bool { return m.steps[i].is == done || m.world.passed[i] }

// reason says why a step may run; empty if it must not.
func (m *model) reason(i int) string {
	b := m.steps[i]
	switch {
	case b.is != done:
		return "it is not done"
	case m.print[i].Sealed:
		return "" // once
	case b.spec != m.spec[i]:
		return "its spec changed"
	case !maps.Equal(b.inputs, m.inputs(i)):
		return "an input changed"
	case m.run.answers[i] == flow.AnswerGone:
		return "its thing is gone"
	}
	return ""
}

// inputs are the outputs that a step is made from, as they are now.
func (m *model) inputs(i int) map[int]made {
	all := map[int]made{}
	for _, j := range slices.Concat(m.print[i].Inputs, m.print[i].RerunAfter) {
		all[j] = m.steps[j].out
	}
	return all
}

// verify is a step's Verify.
func (m *model) verify(i int, out made) flow.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.run
	if r.over.Load() {
		return flow.Unknown(errDead)
	}
	if r.behind[i] {
		m.notRight("s%d is asked about, and lies behind a seal", i)
	}
	if b := m.steps[i]; b.is != done || b.out != out {
		m.notRight("s%d is asked about %+v, and %q is recorded as %+v", i, out, b.is, b.out)
	}
	o, there := m.world.objects[i]
	r.answers[i] = flow.AnswerHolds
	switch {
	case r.Silent[i]:
		r.answers[i] = flow.AnswerUnknown
		m.counted.unknowns.Add(1)
		return flow.Unknown(errSilent)
	case !there || o.ID != out.ID || !m.print[i].Mute && o.From != out.From:
		r.answers[i] = flow.AnswerGone
		m.counted.gone.Add(1)
		return flow.Gone("it is not there")
	}
	return flow.Holds()
}

// do is a step's work: an ensure, with a moment before its effect and one after it.
func (m *model) do(ctx context.Context, i int, inputs []made) (made, error) {
	if err := m.begin(i, inputs); err != nil {
		return made{}, err
	}
	defer m.leave(i)
	if err := m.at(ctx, i, before); err != nil {
		return made{}, err
	}
	out := m.effect(i, inputs)
	if err := m.at(ctx, i, after); err != nil {
		return made{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps[i].next = &belief{is: done, spec: m.spec[i], inputs: m.inputs(i), out: out}
	return out, nil
}

// at is a moment of a step's work, in which it may also fail by itself.
func (m *model) at(ctx context.Context, i int, w when) error {
	if err := m.moment("effect", w); err != nil {
		return err
	}
	if m.run.Fails[i] == w {
		return errFails
	}
	return ctx.Err()
}

// begin checks that the step may begin.
func (m *model) begin(i int, inputs []made) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.run
	if r.over.Load() {
		return errDead
	}
	switch {
	case !r.wanted[i]:
		m.notRight("s%d runs, and no target needs it", i)
	case r.behind[i]:
		m.notRight("s%d runs, and lies behind a seal that was passed", i)
	case r.inside[i] || r.begun[i]:
		m.notRight("s%d runs a second time", i)
	case r.answers[i] == flow.AnswerUnknown:
		m.notRight("s%d runs, and could not be asked about", i)
	case m.reason(i) == "":
		m.notRight("s%d runs, and is done, unchanged and there", i)
	}
	for _, j := range m.print.waitsFor(i, r.sealing) {
		if r.wanted[j] && !r.ended[j] && !r.behind[j] {
			m.notRight("s%d runs before s%d is done", i, j)
		}
	}
	for k, j := range m.print[i].Inputs {
		if inputs[k] != m.steps[j].out {
			m.notRight("s%d gets %+v, and s%d made %+v", i, inputs[k], j, m.steps[j].out)
		}
	}
	if rec, err := m.recorded(m.disk.onDisk(simDir), i); err != nil || rec.State != flow.StateStarted || rec.Run != r.id {
		m.notRight("s%d runs, and on the disk is %+v (%v)", i, rec, err)
	}
	if r.after[i] != nil {
		m.counted.exempt.Add(1)
	}
	m.steps[i].is = undone
	r.begun[i], r.inside[i] = true, true
	return nil
}

func (m *model) leave(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.run.inside[i] = false
}

// effect changes the simulated systems.
func (m *model) effect(i int, inputs []made) made {
	m.mu.Lock()
	defer m.mu.Unlock()
	saw := map[int]made{}
	for _, j := range m.print[i].RerunAfter {
		saw[j] = m.steps[j].out
	}
	o := m.world.ensure(i, origin(m.spec[i], inputs), saw)
	m.counted.effects.Add(1)
	if m.print[i].Sealed {
		m.world.passed[i] = true
	}
	out := made{Step: i, ID: o.ID, From: o.From}
	if m.print[i].Mute {
		out.From = ""
	}
	return out
}

// observe follows the run's events.
func (m *model) observe(e flow.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.index(e.Step)
	if !ok || m.run.over.Load() {
		return
	}
	switch e.Kind {
	case flow.StepDone:
		m.settle(i)
		m.run.ended[i] = true
	case flow.StepReused:
		m.counted.reused.Add(1)
		if why := m.reason(i); why != "" {
			m.notRight("s%d is reused, and %s", i, why)
		}
		if m.print[i].Verified && m.run.answers[i] != flow.AnswerHolds {
			m.notRight("s%d is reused, and verify said %q", i, m.run.answers[i])
		}
		m.run.ended[i] = true
	}
}

func (m *model) index(name string) (int, bool) {
	for i := range m.print {
		if stepName(i) == name {
			return i, true
		}
	}
	return 0, false
}

// settle takes what a step made as recorded.
func (m *model) settle(i int) {
	if next := m.steps[i].next; next != nil {
		m.steps[i] = *next
	}
}

// recorded is a step's record in a journal as it is on the disk.
func (m *model) recorded(data []byte, i int) (flow.Record, error) {
	if data == nil {
		return flow.Record{}, errors.New("no journal")
	}
	s, err := flow.FolderOn(simDir, diskWith(data)).Load(context.Background())
	return s.Steps[stepName(i)], err
}

// powerFails takes what was not flushed, of what the model believes as well. A
// step whose record "started" an earlier run renamed and did not flush is done
// again, as truly as before: work begins only after that flush, so there was none.
func (m *model) powerFails() {
	m.disk.powerFails(m.run.Trouble.Names, m.run.Trouble.Files)
	left := m.disk.onDisk(simDir)
	for i := range m.steps {
		b := &m.steps[i]
		if rec, _ := m.recorded(left, i); b.loose && rec.State == flow.StateDone {
			b.is = done
		} else if b.loose {
			b.is = undone
		}
	}
}

// reconcile compares the journal with what was seen, after a run.
func (m *model) reconcile(s flow.Snapshot) {
	disturbed := m.run.struck && (m.run.Trouble.Kind == kill || m.run.Trouble.Kind == power || m.run.Trouble.Kind == fault)
	flushed, written := m.disk.onDisk(simDir), m.disk.written(simDir)
	for i := range m.print {
		b, rec := &m.steps[i], s.Steps[stepName(i)]
		switch {
		case rec.State == flow.StateDone:
			if b.next != nil {
				m.settle(i)
			}
			want, _ := json.Marshal(b.out)
			var is bytes.Buffer
			_ = json.Compact(&is, rec.Output)
			if b.is != done || canonicalJSON(is.Bytes()) != canonicalJSON(want) {
				m.notRight("s%d is recorded as done with %s, and %q it made %s", i, is.Bytes(), b.is, want)
			}
		case b.next != nil && !disturbed:
			m.notRight("s%d ended well, and is recorded as %q", i, rec.State)
		case b.is == done && (!disturbed || rec.Run != m.run.id || m.reason(i) == ""):
			m.notRight("s%d was done, and is recorded as %q by run %q", i, rec.State, rec.Run)
		default:
			b.is = undone
		}
		b.next = nil
		// A run that was killed may have appended to a file that a later one replaced by a name that is not flushed.
		b.loose = false
		for _, data := range [][]byte{flushed, written} {
			kept, _ := m.recorded(data, i)
			b.loose = b.loose || (kept.State == flow.StateDone) != (b.is == done)
		}
	}
}

func canonicalJSON(data []byte) string {
	var v any
	_ = json.Unmarshal(data, &v)
	out, _ := json.Marshal(v)
	return string(out)
}
