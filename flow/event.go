package flow

import "time"

// EventKind names what happened. The values are stable: programs read them.
type EventKind string

// The kinds of events.
const (
	RunStarted      EventKind = "run-started"      // Message: how many steps are wanted
	RunFinished     EventKind = "run-finished"     // Err is set unless every wanted step is done
	StepVerifying   EventKind = "step-verifying"   // the recorded output is being verified
	StepStarted     EventKind = "step-started"     // Message: why it runs
	StepProgress    EventKind = "step-progress"    // Message: what it does or waits for
	StepDone        EventKind = "step-done"        // it ran; Message: the last thing it said
	StepReused      EventKind = "step-reused"      // its record holds
	StepSkipped     EventKind = "step-skipped"     // Message: why it was not run
	StepFailed      EventKind = "step-failed"      // Err: why
	StepInterrupted EventKind = "step-interrupted" // Message: the last thing it said
)

// Event is one thing that happened in a run. Its JSON names are stable.
type Event struct {
	Time    time.Time     `json:"time"`
	Kind    EventKind     `json:"kind"`
	Run     string        `json:"run"`               // the run's id
	Step    string        `json:"step,omitempty"`    // empty for the run itself
	Message string        `json:"message,omitempty"` // for people
	Attempt int           `json:"attempt,omitempty"` // 1 for a first try, counted on over runs until the step is done
	Elapsed time.Duration `json:"elapsedNs,omitempty"`
	Err     string        `json:"error,omitempty"`
}

// Outcome is how a step came out of a run.
type Outcome string

// The outcomes.
const (
	Ran         Outcome = "ran"
	Reused      Outcome = "reused"
	Skipped     Outcome = "skipped"
	Failed      Outcome = "failed"
	Interrupted Outcome = "interrupted"
)

// Report is what became of every wanted step, in the graph's order.
type Report struct {
	Run     string        `json:"run"`
	Graph   string        `json:"graph"`
	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsedNs"`
	Steps   []StepReport  `json:"steps"`
}

// StepReport is what became of one step.
type StepReport struct {
	Name    string        `json:"name"`
	Outcome Outcome       `json:"outcome"`
	Elapsed time.Duration `json:"elapsedNs"`
	// Reason says why it ran, was skipped, failed or was interrupted.
	Reason string `json:"reason,omitempty"`
}

// Step finds a step's report by name.
func (r *Report) Step(name string) (StepReport, bool) {
	for _, s := range r.Steps {
		if s.Name == name {
			return s, true
		}
	}
	return StepReport{}, false
}
