package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
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

// Step is the handle of a step whose output is a T. T must survive JSON.
type Step[T any] struct{ n *node }

// Add adds a step without arguments.
func Add[T any](g *Graph, name string, do func(context.Context, Say) (T, error)) *Step[T] {
	return add(g, name, do == nil, func(ctx context.Context, say Say, _ []any) (T, error) {
		return do(ctx, say)
	})
}

// Add1 adds a step that takes the output of another.
func Add1[A, T any](g *Graph, name string, do func(context.Context, Say, A) (T, error), a *Step[A]) *Step[T] {
	return add(g, name, do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]))
	}, a)
}

// Add2 adds a step that takes the outputs of two others.
func Add2[A, B, T any](g *Graph, name string, do func(context.Context, Say, A, B) (T, error),
	a *Step[A], b *Step[B]) *Step[T] {
	return add(g, name, do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]), arg[B](in[1]))
	}, a, b)
}

// Add3 adds a step that takes the outputs of three others.
func Add3[A, B, C, T any](g *Graph, name string, do func(context.Context, Say, A, B, C) (T, error),
	a *Step[A], b *Step[B], c *Step[C]) *Step[T] {
	return add(g, name, do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]), arg[B](in[1]), arg[C](in[2]))
	}, a, b, c)
}

// Add4 adds a step that takes the outputs of four others.
func Add4[A, B, C, D, T any](g *Graph, name string, do func(context.Context, Say, A, B, C, D) (T, error),
	a *Step[A], b *Step[B], c *Step[C], d *Step[D]) *Step[T] {
	return add(g, name, do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]), arg[B](in[1]), arg[C](in[2]), arg[D](in[3]))
	}, a, b, c, d)
}

// AddAll adds a step that takes the outputs of any number of others of one type, in their order.
func AddAll[A, T any](g *Graph, name string, do func(context.Context, Say, []A) (T, error), all []*Step[A]) *Step[T] {
	inputs := make([]Node, len(all))
	for i, a := range all {
		inputs[i] = a
	}
	return add(g, name, do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		outputs := make([]A, len(in))
		for i := range in {
			outputs[i] = arg[A](in[i])
		}
		return do(ctx, say, outputs)
	}, inputs...)
}

// arg gives a decoded output its type back; a nil interface has none to assert.
func arg[A any](v any) A {
	a, _ := v.(A)
	return a
}

func add[T any](g *Graph, name string, empty bool, do func(context.Context, Say, []any) (T, error),
	inputs ...Node) *Step[T] {
	n := &node{
		graph:  g,
		name:   name,
		output: reflect.TypeFor[T](),
		do: func(ctx context.Context, say Say, in []any) (any, error) {
			return do(ctx, say, in)
		},
		decode: func(raw json.RawMessage) (any, error) { return decode[T](raw) },
	}
	if empty {
		g.problem("step %s has no function", name)
	}
	var zero T
	if _, err := json.Marshal(zero); err != nil {
		g.problem("step %s: its output cannot be written to the journal: %w", name, err)
	}
	for i, input := range inputs {
		if in, err := g.own(input); err != nil {
			g.problem("step %s: argument %d %w", name, i+1, err)
		} else {
			n.inputs = append(n.inputs, in)
		}
	}
	g.nodes = append(g.nodes, n)
	return &Step[T]{n}
}

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

// Spec is what the step is made from, besides its arguments: the part of the
// configuration that it reads. It is written as JSON to the journal, so it must
// not contain a secret, and when it differs from the recorded one the step runs
// again.
func (s *Step[T]) Spec(v any) *Step[T] {
	raw, err := json.Marshal(v)
	if err == nil {
		s.n.spec, err = canonical(raw)
	}
	if err != nil {
		s.n.graph.problem("step %s: its spec cannot be written to the journal: %w", s.n.name, err)
	}
	return s
}

// Verify sets the function that reports whether a recorded output is still true.
// It must only read, and it has VerifyWithin to answer. It is called once when a
// step is about to be reused, and not after the step has run.
func (s *Step[T]) Verify(check func(context.Context, T) Verdict) *Step[T] {
	s.n.verify = func(ctx context.Context, output any) Verdict { return check(ctx, arg[T](output)) }
	if check == nil {
		s.n.verify = nil
	}
	return s
}

// After orders the step after others without taking their outputs. A run that
// wants the step runs them, too.
func (s *Step[T]) After(nodes ...Node) *Step[T] {
	s.n.after = s.handles(s.n.after, "After", nodes)
	return s
}

// OrderAfter orders the step after others in a run that wants them, too. It adds
// no dependency: each can be run without the other.
func (s *Step[T]) OrderAfter(to ...Node) *Step[T] {
	s.n.orderAfter = s.handles(s.n.orderAfter, "OrderAfter", to)
	return s
}

// RerunAfter orders the step after others and runs it again when one of their
// outputs changes, without passing it the output: for a step that waits for, or
// checks, what others did and needs none of their results.
func (s *Step[T]) RerunAfter(nodes ...Node) *Step[T] {
	s.n.rerunAfter = s.handles(s.n.rerunAfter, "RerunAfter", nodes)
	return s
}

// handles appends the nodes behind handles, and reports those that are none.
func (s *Step[T]) handles(list []*node, method string, nodes []Node) []*node {
	for _, handle := range nodes {
		if n, err := s.n.graph.own(handle); err != nil {
			s.n.graph.problem("step %s: %s %w", s.n.name, method, err)
		} else {
			list = append(list, n)
		}
	}
	return list
}

// Deadline bounds one attempt of the step. Without one it has no bound.
func (s *Step[T]) Deadline(d time.Duration) *Step[T] {
	s.n.deadline = d
	return s
}

// Waits declares the longest that the step's inner waits can take, one after
// another. Validate refuses a graph in which they do not fit into the deadline:
// the inner wait knows better why it ends, and must be the one that does.
func (s *Step[T]) Waits(w ...Wait) *Step[T] {
	s.n.waits = slices.Clone(w)
	return s
}

// Seal makes the step a point of no return.
func (s *Step[T]) Seal() *Step[T] {
	s.n.sealed = true
	return s
}

// Replace gives the step another function, which takes no arguments, in a plan
// that the caller did not write. The step keeps its name, its output type, its
// deadline and its place in the graph: what it needed it still comes after. It
// loses its sentence, Spec, Verify and Waits, which described the old function;
// the caller sets those that it has.
func (s *Step[T]) Replace(do func(context.Context, Say) (T, error)) *Step[T] {
	if do == nil {
		s.n.graph.problem("step %s: Replace has no function", s.n.name)
		return s
	}
	s.n.do = func(ctx context.Context, say Say, _ []any) (any, error) { return do(ctx, say) }
	s.n.doc, s.n.spec, s.n.verify, s.n.waits = "", nil, nil, nil
	return s
}

// Doc says in a sentence what the step ensures.
func (s *Step[T]) Doc(sentence string) *Step[T] {
	s.n.doc = sentence
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
