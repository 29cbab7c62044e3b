package flow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ErrInterrupted is wrapped by the error of a run whose context was cancelled.
var ErrInterrupted = errors.New("interrupted; what is done is kept and the next run resumes from there")

// StepError is the failure of one step.
type StepError struct {
	Step    string
	Attempt int           // counted over runs until the step is done
	Elapsed time.Duration // of this attempt
	Err     error
}

func (e *StepError) Error() string {
	if e.Attempt > 1 {
		return fmt.Sprintf("step %s failed after %s (attempt %d): %v", e.Step, round(e.Elapsed), e.Attempt, e.Err)
	}
	return fmt.Sprintf("step %s failed after %s: %v", e.Step, round(e.Elapsed), e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }

// DeadlineError is the cause of a step's context when its deadline has passed.
// errors.Is(err, context.DeadlineExceeded) holds for it.
type DeadlineError struct {
	Step     string
	Deadline time.Duration

	mu   sync.Mutex
	said string
}

func (e *DeadlineError) Error() string {
	if said := e.LastSaid(); said != "" {
		return fmt.Sprintf("%s is not done within its deadline of %s; last seen: %s", e.Step, e.Deadline, said)
	}
	return fmt.Sprintf("%s is not done within its deadline of %s and never said what it waits for", e.Step, e.Deadline)
}

// LastSaid is the last progress line of the step.
func (e *DeadlineError) LastSaid() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.said
}

func (e *DeadlineError) say(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = line
}

// Is makes it a context.DeadlineExceeded.
func (e *DeadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// PanicError is a panic inside a step or its Verify. The stack is for a log,
// not for the message.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the value that was thrown, where it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// UnverifiableError says that a step's record could not be verified. The step
// was not run: an unknown state is no reason to create anything. Steps that do
// not depend on it may have run.
type UnverifiableError struct {
	Step string
	Err  error
}

func (e *UnverifiableError) Error() string {
	return fmt.Sprintf("could not verify whether what step %s created still exists: %v; "+
		"this step created nothing: make what it asks reachable and run again", e.Step, e.Err)
}

func (e *UnverifiableError) Unwrap() error { return e.Err }

// LockedError says that another run holds the journal.
type LockedError struct {
	PID   int
	Host  string
	Since time.Time
	Path  string // of the lock, where there is one
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another run holds the lock %s: wait until it has ended", e.Path)
	}
	return fmt.Sprintf("another run is at work since %s (process %d on %s): wait for it, or end it, and run again",
		e.Since.Local().Format(time.DateTime), e.PID, e.Host)
}

// SealedError refuses to run a step that precedes a point of no return that was passed.
type SealedError struct {
	Step   string
	By     string // the sealed step
	Reason string // where Step is By itself: what is wrong with it
}

func (e *SealedError) Error() string {
	if e.Step == e.By {
		return fmt.Sprintf("step %s is a point of no return and was passed, but %s; it is not run a second time", e.Step,
			e.Reason)
	}
	return fmt.Sprintf("step %s cannot be run any more: it lies before %s, a point of no return that was passed", e.Step,
		e.By)
}

// UnknownStepError refuses a target that the graph does not have.
type UnknownStepError struct {
	Name    string
	Nearest string // the most similar name; empty if none is similar
}

func (e *UnknownStepError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("there is no step %q", e.Name)
	}
	return fmt.Sprintf("there is no step %q; did you mean %q?", e.Name, e.Nearest)
}

// InvalidError lists everything that is wrong with a graph. Nothing was run.
type InvalidError struct {
	Graph    string
	Problems []error
}

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return fmt.Sprintf("graph %s: %s", e.Graph, strings.Join(lines, "; "))
}

func (e *InvalidError) Unwrap() []error { return e.Problems }

// round makes a duration readable: milliseconds below a second, tenths above.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
