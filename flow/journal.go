package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Journal keeps what is known about the steps of one graph. It is small so
// that a folder, an object store or an object in a cluster can be one.
type Journal interface {
	// Lock keeps other runs out until unlock is called. It does not wait: where
	// another run holds the lock the error is, or wraps, a *LockedError.
	Lock(ctx context.Context) (unlock func() error, err error)
	// Load reads the last snapshot that was saved; the zero Snapshot if there
	// is none. It does not need the lock.
	Load(ctx context.Context) (Snapshot, error)
	// Save replaces the snapshot as a whole: after a crash at any point Load
	// gives either the old one or the new one. Its context is not cancelled
	// with the run's.
	Save(ctx context.Context, s Snapshot) error
}

// Appender is a Journal that can record a change without writing all the rest
// again. A journal that is none is given whole snapshots.
type Appender interface {
	Journal
	// Append replaces the records that change has, and everything but the records: its Steps are only those that changed
	// since the last Save or Append. After a crash at any point Load gives the snapshot with all of the change or
	// with none of it, and once Append has returned, with it. It is called with the lock held.
	Append(ctx context.Context, change Snapshot) error
}

// Append records a change in any journal, for a Journal that wraps another: where that one is no Appender, by a Load
// and a Save.
func Append(ctx context.Context, j Journal, change Snapshot) error {
	if appender, ok := j.(Appender); ok {
		return appender.Append(ctx, change)
	}
	s, err := j.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the journal: %w", err)
	}
	s.apply(change)
	return j.Save(ctx, s)
}

// Format is the version of a Snapshot's JSON that this package writes. It reads
// this one and older ones, and refuses newer ones.
const Format = 1

// Snapshot is everything that a journal knows. Its JSON is stable; a journal
// stores it as json.Marshal gives it, with a sum over all of it: a bit that
// flips inside a string still parses, and would be believed.
type Snapshot struct {
	Format  int               `json:"format"`
	Graph   string            `json:"graph"`
	Run     string            `json:"run"` // id of the last run that wrote
	Updated time.Time         `json:"updated"`
	Steps   map[string]Record `json:"steps"`
}

// State is how far a step came.
type State string

// The states of a record.
const (
	StateStarted     State = "started" // it is running, or its run was killed
	StateDone        State = "done"
	StateFailed      State = "failed"
	StateInterrupted State = "interrupted"
)

// Record is what a journal knows about one step.
type Record struct {
	State   State             `json:"state"`
	Hash    string            `json:"hash"`             // of Spec and Inputs
	Spec    json.RawMessage   `json:"spec,omitempty"`   // what it was, or is being, made from
	Inputs  map[string]string `json:"inputs,omitempty"` // argument → digest of its output
	Attempt int               `json:"attempt"`          // counted until the step is done
	Run     string            `json:"run"`
	Started time.Time         `json:"started"`
	Ended   time.Time         `json:"ended,omitzero"`
	Said    string            `json:"said,omitempty"`  // the last progress line
	Error   string            `json:"error,omitempty"` // why it failed
	// Output is what the step made. While State is not done it is what it made
	// when it last was, so that what may still exist stays known.
	Output json.RawMessage `json:"output,omitempty"`
	// Made is what Output was made from, while State is not done: what failed
	// attempts were made from is in Spec and Inputs.
	Made *Made `json:"made,omitempty"`
}

// Made is what a step was made from when it was last done.
type Made struct {
	Spec   json.RawMessage   `json:"spec,omitempty"`
	Inputs map[string]string `json:"inputs,omitempty"`
}

// made is what the step was made from when it was last done; nil where it never was, or that is not known.
func (rec Record) made() *Made {
	if rec.State == StateDone {
		return &Made{Spec: rec.Spec, Inputs: rec.Inputs}
	}
	return rec.Made
}

// begin is the record of an attempt that starts now.
func (rec Record) begin(k key, run string, now time.Time) Record {
	next := Record{
		State: StateStarted, Hash: k.hash, Spec: k.spec, Inputs: k.inputs,
		Attempt: 1, Run: run, Started: now, Output: rec.Output, Made: rec.made(),
	}
	if rec.State != StateDone {
		next.Attempt = rec.Attempt + 1
	}
	return next
}

// UnmarshalJSON refuses a format that it does not know, before it looks at
// anything that the format may have changed, and content that is not what was
// written.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	var head struct {
		Format int     `json:"format"`
		Sum    *string `json:"sum"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	// The sum first: what does not match it is not of a newer format but damaged. A newer format may have another kind of
	// sum.
	known := head.Format <= Format || head.Sum != nil && strings.HasPrefix(*head.Sum, sumRule)
	if err := checkSum(data, head.Sum); err != nil && known {
		return err
	}
	if head.Format > Format {
		return &FormatError{Format: head.Format}
	}
	if head.Format < 1 {
		return fmt.Errorf("it has no format number, so it is not a journal")
	}
	type plain Snapshot // without this method
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	*s = Snapshot(p)
	return s.checkStates()
}

// checkStates refuses a state that no release writes.
func (s Snapshot) checkStates() error {
	for name, rec := range s.Steps {
		switch rec.State {
		case StateStarted, StateDone, StateFailed, StateInterrupted:
		default:
			return fmt.Errorf("step %s is in the unknown state %q", name, rec.State)
		}
	}
	return nil
}

// FormatError says that a newer program wrote the journal.
type FormatError struct{ Format int }

func (e *FormatError) Error() string {
	return fmt.Sprintf("it is of format %d and this program reads formats up to %d: "+
		"use the newer program that wrote it", e.Format, Format)
}

// load reads a journal for a graph.
func (g *Graph) load(ctx context.Context, j Journal) (Snapshot, error) {
	s, err := j.Load(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("load the journal: %w", err)
	}
	if s.Format > Format {
		return Snapshot{}, fmt.Errorf("load the journal: %w", &FormatError{Format: s.Format})
	}
	if s.Graph != "" && s.Graph != g.name {
		return Snapshot{}, fmt.Errorf("the journal belongs to %q, not to %q: use another state folder", s.Graph, g.name)
	}
	return s, nil
}

// Restore reads a done step's output out of a journal, without verifying it. It returns false for a step that is not
// done.
func Restore[T any](ctx context.Context, j Journal, s *Step[T]) (T, bool, error) {
	var zero T
	snapshot, err := s.n.graph.load(ctx, j)
	if err != nil {
		return zero, false, err
	}
	rec, ok := snapshot.Steps[s.n.name]
	if !ok || rec.State != StateDone {
		return zero, false, nil
	}
	v, err := ofAnyRelease(decode[T](rec.Output))
	if err != nil {
		return zero, false, fmt.Errorf("restore the output of step %s: %w", s.n.name, err)
	}
	return v, true, nil
}
