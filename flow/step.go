package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Say is how a step tells what it does, or what it waits for and why. The last
// line is kept: it explains a deadline that passed. Saying the same thing twice
// in a row says it once. A line must not contain a secret.
type Say func(format string, args ...any)

// Node is any step's handle, whatever its output.
type Node interface {
	// Name is the step's name.
	Name() string
	node() *node
}

// Step is the handle of a step whose output is a T. T must survive JSON. The methods that add edges, and
// ExemptFromSeal, are for the page on which a plan puts its steps in order; the fields of Task of their names do the
// same where the step is made.
type Step[T any] struct{ n *node }

// own is the node behind a handle of this graph.
func (g *Graph) own(handle Node) (*node, error) {
	if handle == nil || handle.node() == nil {
		return nil, errors.New("is a nil handle")
	}
	if n := handle.node(); n.graph != g {
		return nil, fmt.Errorf("is step %s of another graph (%s)", n.name, n.graph.name)
	}
	return handle.node(), nil
}

// Name is the step's name.
func (s *Step[T]) Name() string {
	if s == nil || s.n == nil {
		return ""
	}
	return s.n.name
}

func (s *Step[T]) node() *node {
	if s == nil {
		return nil
	}
	return s.n
}

// After orders the step after others without taking their outputs. A run that
// wants the step runs them, too.
func (s *Step[T]) After(nodes ...Node) *Step[T] {
	s.n.after = s.n.handles(s.n.after, "After", nodes)
	return s
}

// OrderAfter orders the step after others in a run that wants them, too. It adds
// no dependency: each can be run without the other.
func (s *Step[T]) OrderAfter(to ...Node) *Step[T] {
	s.n.orderAfter = s.n.handles(s.n.orderAfter, "OrderAfter", to)
	return s
}

// RerunAfter orders the step after others and runs it again when one of their
// outputs changes, without passing it the output: for a step that waits for, or
// checks, what others did and needs none of their results.
func (s *Step[T]) RerunAfter(nodes ...Node) *Step[T] {
	s.n.rerunAfter = s.n.handles(s.n.rerunAfter, "RerunAfter", nodes)
	return s
}

// decode restores an output and makes sure that nothing was lost: a field that
// today's type has more or less than the recorded output makes it another
// output, which only the step can make. Then the error is a *changedOutputError,
// and the output has the zero value in place of what the record lacks.
func decode[T any](raw json.RawMessage) (T, error) {
	var v, zero T
	if err := json.Unmarshal(raw, &v); err != nil {
		return zero, err
	}
	again, err := json.Marshal(v)
	if err != nil {
		return zero, err
	}
	was, err := canonical(raw)
	if err != nil {
		return zero, err
	}
	is, err := canonical(again)
	if err != nil {
		return zero, err
	}
	if !bytes.Equal(was, is) {
		return v, &changedOutputError{fields: in(differences(was, is))}
	}
	return v, nil
}

// changedOutputError says that a type has other fields than an output of it
// that was recorded, by another release.
type changedOutputError struct{ fields string }

func (e *changedOutputError) Error() string {
	return "it changes on its way through JSON" + e.fields
}

// ofAnyRelease accepts what decode has restored from an output of another
// release: where the step is not run again to make today's output, because it
// is a point of no return or precedes one, the old one is all there is.
func ofAnyRelease[T any](v T, err error) (T, error) {
	if changed := (*changedOutputError)(nil); errors.As(err, &changed) {
		return v, nil
	}
	return v, err
}
