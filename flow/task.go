package flow

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"time"
)

// Task describes a step. Name and Run are required.
type Task[T any] struct {
	// Name is in kebab case, and no other step of the graph has it. The journal records the step under it.
	Name string
	// Doc says in a sentence what the step ensures.
	Doc string
	// Run is the function of the step, with the steps whose outputs it takes. It must be an "ensure": it may find what
	// a run that was killed has made.
	Run Work[T]

	// After, OrderAfter and RerunAfter are steps that this one comes after without taking their outputs, as those that
	// the methods of Step of the same names add.
	After, OrderAfter, RerunAfter []Node
	// Before are steps that come after this one, as if it were among their After: for a step that is added to an
	// existing plan.
	Before []Node

	// Spec is the part of the configuration that the step uses, besides its arguments. It is
	// written as JSON to the journal, so it must not contain a secret, and when it differs from the recorded one the
	// step runs again. Nil: none.
	Spec any
	// Verify reports whether a recorded output is still true. It must only read, and it has VerifyWithin to answer. It
	// is called once when a step is about to be reused, and not after the step has run. Nil: the record is enough.
	Verify func(context.Context, T) Verdict

	// Deadline bounds one attempt of the step. Without one it has no bound.
	Deadline time.Duration
	// Waits declares the longest that the step's inner waits can take, one after another. Validate refuses a graph in
	// which they do not fit into the deadline, so that the inner wait ends first and reports the reason.
	Waits []Wait

	// Seal makes the step a point of no return.
	Seal bool
	// ResumeWhen reports whether the step has passed the point of no return although its record does not say so: its
	// run ended in it, or the journal was lost. Then the only correct thing is to resume it: the steps before it are
	// skipped, as if this step were done, and this step runs. The function is called at the start of every run, must
	// only read, and must not take long. An error stops the run: a step before the seal must not run on a guess.
	ResumeWhen func() (bool, error)
	// ExemptFromSeal exempts the step from the seals of later steps, as the method of Step of that name does.
	ExemptFromSeal bool
}

// Of lists steps of any types, for the fields of a Task.
func Of(nodes ...Node) []Node { return nodes }

// Add adds a step to a graph. What is wrong with the task Validate reports.
func Add[T any](g *Graph, t Task[T]) *Step[T] {
	n := &node{
		graph:  g,
		name:   t.Name,
		output: reflect.TypeFor[T](),
		decode: func(raw json.RawMessage) (any, error) { return decode[T](raw) },
	}
	if t.Run.do == nil {
		g.problem("step %s has no function", n.name)
	}
	var zero T
	if _, err := json.Marshal(zero); err != nil {
		g.problem("step %s: its output cannot be written to the journal: %w", n.name, err)
	}
	t.apply(n)
	g.nodes = append(g.nodes, n)
	return &Step[T]{n}
}

// Replace gives the step what the task sets, in a plan that the caller did not write: another function, say, and what
// describes that. What the task leaves at its zero value the step keeps, also its Spec, Verify, Waits, Deadline and
// Doc, so a task with another function must set those of them that describe the old one only. The step keeps its name,
// its output type and its place in the graph: what it needed it still comes after, and the task's edges are added. It
// also still runs again when the output of a step changes that the old function took and the new one does not.
func (s *Step[T]) Replace(t Task[T]) *Step[T] {
	n := s.n
	if t.Name != "" && t.Name != n.name {
		n.graph.problem("step %s: Replace has the name %q; a step that is replaced keeps its name", n.name, t.Name)
	}
	if t.Run.given && t.Run.do == nil {
		n.graph.problem("step %s: Replace has no function", n.name)
	}
	t.apply(n)
	return s
}

// apply gives a node all that the task sets.
func (t Task[T]) apply(n *node) {
	if t.Doc != "" {
		n.doc = t.Doc
	}
	if t.Run.given {
		t.Run.apply(n)
	}
	n.after = n.handles(n.after, "After", t.After)
	n.orderAfter = n.handles(n.orderAfter, "OrderAfter", t.OrderAfter)
	n.rerunAfter = n.handles(n.rerunAfter, "RerunAfter", t.RerunAfter)
	for _, later := range n.handles(nil, "Before", t.Before) {
		later.after = append(later.after, n)
	}
	if t.Spec != nil {
		n.setSpec(t.Spec)
	}
	if t.Verify != nil {
		n.verify = func(ctx context.Context, output any) Verdict { return t.Verify(ctx, arg[T](output)) }
	}
	if t.Deadline != 0 {
		n.deadline = t.Deadline
	}
	if t.Waits != nil {
		n.waits = slices.Clone(t.Waits)
	}
	if t.ResumeWhen != nil {
		n.resumeWhen = t.ResumeWhen
	}
	n.sealed = n.sealed || t.Seal
	n.exempt = n.exempt || t.ExemptFromSeal
}

// apply gives a node the function and the arguments.
func (w Work[T]) apply(n *node) {
	n.do = func(ctx context.Context, say Say, in []any) (any, error) { return w.do(ctx, say, in) }
	were := n.inputs
	n.inputs = nil
	for i, input := range w.inputs {
		if in, err := n.graph.own(input); err != nil {
			n.graph.problem("step %s: argument %d %w", n.name, i+1, err)
		} else {
			n.inputs = append(n.inputs, in)
		}
	}
	// In front of RerunAfter the old arguments leave the hash of the step as it was, where the function takes none.
	kept := slices.DeleteFunc(were, func(in *node) bool { return slices.Contains(n.inputs, in) })
	n.rerunAfter = append(kept, n.rerunAfter...)
}

// setSpec sets the spec in the form in which it is hashed and recorded.
func (n *node) setSpec(v any) {
	raw, err := json.Marshal(v)
	if err == nil {
		n.spec, err = canonical(raw)
	}
	if err != nil {
		n.graph.problem("step %s: its spec cannot be written to the journal: %w", n.name, err)
	}
}

// handles appends the nodes behind handles, and reports those that are none.
func (n *node) handles(list []*node, field string, nodes []Node) []*node {
	for _, handle := range nodes {
		if m, err := n.graph.own(handle); err != nil {
			n.graph.problem("step %s: %s %w", n.name, field, err)
		} else {
			list = append(list, m)
		}
	}
	return list
}
