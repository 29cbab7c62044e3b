package session

import (
	"fmt"
	"io"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// PlainDisplay writes one line a change, for pipes and logs.
type PlainDisplay struct {
	Out io.Writer

	skipped SkipReasons // of steps that no line tells of yet
	at      time.Time   // of the last of them
}

// Event prints an event as one line. Steps that are skipped one after another have one line for each reason.
func (d *PlainDisplay) Event(e flow.Event) {
	if e.Kind == flow.StepSkipped {
		d.skipped.Add(text.Printable(e.Message), e.Step)
		d.at = e.Time
		return
	}
	d.Close()
	if line := sentence(e); line != "" {
		d.print(e.Time, line)
	}
}

func (d *PlainDisplay) print(at time.Time, line string) {
	fmt.Fprintf(d.Out, "%s %s\n", at.Format(time.RFC3339), line)
}

// Close prints what was not printed yet.
func (d *PlainDisplay) Close() {
	for reason, names := range d.skipped.All() {
		line := names[0] + ": skipped: " + reason
		if len(names) > 1 {
			line = SkippedTogether(reason, names)
		}
		d.print(d.at, line)
	}
	d.skipped = SkipReasons{}
}

// sentence says an event in one line; "" for one that a person does not need.
func sentence(e flow.Event) string {
	message := text.Plainly(text.Printable(e.Message))
	switch e.Kind {
	case runs.NoteEvent:
		return "note: " + message
	case flow.RunStarted:
		return "run " + e.Run + " begins: " + message
	case flow.RunFinished:
		if e.Err != "" {
			return "run ended after " + text.Elapsed(e.Elapsed) // why is said by the command's error
		}
		return "run finished in " + text.Elapsed(e.Elapsed)
	case flow.StepStarted:
		if e.Attempt > 1 {
			return fmt.Sprintf("%s: begins, attempt %d: %s", e.Step, e.Attempt, message)
		}
		return fmt.Sprintf("%s: begins: %s", e.Step, message)
	case flow.StepProgress:
		return e.Step + ": " + message
	case flow.StepDone:
		return fmt.Sprintf("%s: done in %s", e.Step, text.Elapsed(e.Elapsed))
	case flow.StepReused:
		return fmt.Sprintf("%s: reused, checked in %s", e.Step, text.Elapsed(e.Elapsed))
	case flow.StepFailed:
		return fmt.Sprintf("%s: FAILED after %s: %s", e.Step, text.Elapsed(e.Elapsed), text.Plainly(text.Printable(e.Err)))
	case flow.StepInterrupted:
		if message == "" {
			return e.Step + ": interrupted"
		}
		return fmt.Sprintf("%s: interrupted; last: %s", e.Step, message)
	default: // step-verifying: the answer follows
		return ""
	}
}
