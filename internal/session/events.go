package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// Display shows a run while it happens. Its methods are called one at a time.
type Display interface {
	Event(flow.Event)
	// Close ends what moves on the screen; afterwards the streams are free.
	Close()
}

// Hub takes the events of a run and of what the command does around it, hides
// secrets in them, and hands them to every display, one at a time.
type Hub struct {
	mu       sync.Mutex
	Run      string
	Hide     *redact.Redactor
	Displays []Display
	atWork   map[string]bool // steps that have begun and not ended
}

// Observe is flow's Observe.
func (h *Hub) Observe(e flow.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e = h.Hide.Event(e)
	h.follow(e)
	for _, d := range h.Displays {
		d.Event(e)
	}
}

// Expect announces the steps of a run to the displays that show them before they begin.
func (h *Hub) Expect(all []ExpectedStep) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.Displays {
		if d, ok := d.(interface{ Expect([]ExpectedStep) }); ok {
			d.Expect(all)
		}
	}
}

// follow keeps who is at work.
func (h *Hub) follow(e flow.Event) {
	switch e.Kind {
	case flow.StepStarted:
		if h.atWork == nil {
			h.atWork = map[string]bool{}
		}
		h.atWork[e.Step] = true
	case flow.StepDone, flow.StepFailed, flow.StepInterrupted:
		delete(h.atWork, e.Step)
	}
}

// OnlyRunningStep is the step that is at work, where there is one and no other.
func (h *Hub) OnlyRunningStep() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.atWork) != 1 {
		return ""
	}
	for name := range h.atWork {
		return name
	}
	return ""
}

// Close ends the displays; what comes later is lost.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.Displays {
		d.Close()
	}
	h.Displays = nil
}

// Note tells a person something.
func (h *Hub) Note(format string, args ...any) {
	h.Observe(flow.Event{Time: time.Now(), Kind: runs.NoteEvent, Run: h.Run, Message: fmt.Sprintf(format, args...)})
}

// Task shows work that is not a step of the graph as if it were one: it comes
// before the graph, but a person waits for it all the same.
func (h *Hub) Task(name, why string, work func(say flow.Say) error) error {
	began := time.Now()
	emit := func(kind flow.EventKind, message string, err error) {
		e := flow.Event{Time: time.Now(), Kind: kind, Run: h.Run, Step: name, Message: message, Attempt: 1,
			Elapsed: time.Since(began)}
		if err != nil {
			e.Err = err.Error()
		}
		h.Observe(e)
	}
	emit(flow.StepStarted, why, nil)
	last := ""
	err := work(func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); line != last {
			last = line
			emit(flow.StepProgress, line, nil)
		}
	})
	switch {
	case err == nil:
		emit(flow.StepDone, last, nil)
	case errors.Is(err, flow.ErrInterrupted):
		emit(flow.StepInterrupted, last, nil)
	default:
		emit(flow.StepFailed, "", err)
	}
	return err
}

// jsonDisplay writes one event a line.
type jsonDisplay struct{ encoder *json.Encoder }

// NewJSONDisplay writes each event as one line of JSON.
func NewJSONDisplay(w io.Writer) Display { return jsonDisplay{json.NewEncoder(w)} }

func (d jsonDisplay) Event(e flow.Event) { _ = d.encoder.Encode(e) } // a reader that went away is no reason to stop
func (d jsonDisplay) Close()             {}

// ExpectedStep is a step that a run is going to come to, and how long it takes
// as far as that is known.
type ExpectedStep struct {
	Name     string
	Takes    time.Duration // 0: unknown, or it is not expected to run
	Recorded bool          // takes is from earlier runs, not built in
}
