package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// display shows a run while it happens. Its methods are called one at a time.
type display interface {
	event(flow.Event)
	// close ends what moves on the screen; afterwards the streams are free.
	close()
}

// hub takes the events of a run and of what the command does around it, hides
// secrets in them, and hands them to every display, one at a time.
type hub struct {
	mu       sync.Mutex
	run      string
	hide     *redactor
	displays []display
	atWork   map[string]bool // steps that have begun and not ended
}

// observe is flow's Observe.
func (h *hub) observe(e flow.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e = h.hide.event(e)
	h.follow(e)
	for _, d := range h.displays {
		d.event(e)
	}
}

// expect announces the steps of a run to the displays that show them before they begin.
func (h *hub) expect(all []expectedStep) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.displays {
		if d, ok := d.(interface{ expect([]expectedStep) }); ok {
			d.expect(all)
		}
	}
}

// follow keeps who is at work.
func (h *hub) follow(e flow.Event) {
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

// alone is the step that is at work, where there is one and no other.
func (h *hub) alone() string {
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

// close ends the displays; what comes later is lost.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.displays {
		d.close()
	}
	h.displays = nil
}

// note tells a person something.
func (h *hub) note(format string, args ...any) {
	h.observe(flow.Event{Time: time.Now(), Kind: noteEvent, Run: h.run, Message: fmt.Sprintf(format, args...)})
}

// task shows work that is not a step of the graph as if it were one: it comes
// before the graph, but a person waits for it all the same.
func (h *hub) task(name, why string, work func(say flow.Say) error) error {
	began := time.Now()
	emit := func(kind flow.EventKind, message string, err error) {
		e := flow.Event{Time: time.Now(), Kind: kind, Run: h.run, Step: name, Message: message, Attempt: 1, Elapsed: time.Since(began)}
		if err != nil {
			e.Err = err.Error()
		}
		h.observe(e)
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

func newJSONDisplay(w io.Writer) display { return jsonDisplay{json.NewEncoder(w)} }

func (d jsonDisplay) event(e flow.Event) { _ = d.encoder.Encode(e) } // a reader that went away is no reason to stop
func (d jsonDisplay) close()             {}

// plainDisplay writes one line a change, for pipes and logs.
type plainDisplay struct{ out io.Writer }

func (d plainDisplay) event(e flow.Event) {
	if line := sentence(e); line != "" {
		fmt.Fprintf(d.out, "%s %s\n", e.Time.Format(time.RFC3339), line)
	}
}

func (d plainDisplay) close() {}

// sentence says an event in one line; "" for one that a person does not need.
func sentence(e flow.Event) string {
	message := printable(e.Message)
	switch e.Kind {
	case noteEvent:
		return "note: " + message
	case flow.RunStarted:
		return "run " + e.Run + " begins: " + message
	case flow.RunFinished:
		if e.Err != "" {
			return "run ended after " + elapsed(e.Elapsed) // why is said by the command's error
		}
		return "run finished in " + elapsed(e.Elapsed)
	case flow.StepStarted:
		if e.Attempt > 1 {
			return fmt.Sprintf("%s: begins, attempt %d: %s", e.Step, e.Attempt, message)
		}
		return fmt.Sprintf("%s: begins: %s", e.Step, message)
	case flow.StepProgress:
		return e.Step + ": " + message
	case flow.StepDone:
		return fmt.Sprintf("%s: done in %s", e.Step, elapsed(e.Elapsed))
	case flow.StepReused:
		return fmt.Sprintf("%s: reused, checked in %s", e.Step, elapsed(e.Elapsed))
	case flow.StepSkipped:
		return fmt.Sprintf("%s: skipped: %s", e.Step, message)
	case flow.StepFailed:
		return fmt.Sprintf("%s: FAILED after %s: %s", e.Step, elapsed(e.Elapsed), printable(e.Err))
	case flow.StepInterrupted:
		if message == "" {
			return e.Step + ": interrupted"
		}
		return fmt.Sprintf("%s: interrupted; last: %s", e.Step, message)
	default: // step-verifying: the answer follows
		return ""
	}
}
