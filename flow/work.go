package flow

import "context"

// Work is a step's function and its input steps. Do, With1 to With4 and WithAll make it, and the
// compiler checks that the outputs are what the function takes.
type Work[T any] struct {
	// given is false for the zero Work only: Replace keeps the step's own for it, and reports a nil function.
	given  bool
	inputs []Node
	do     func(context.Context, Say, []any) (T, error) // nil: the caller passed a nil function
}

// Do is a function without arguments.
func Do[T any](do func(context.Context, Say) (T, error)) Work[T] {
	return work(do == nil, func(ctx context.Context, say Say, _ []any) (T, error) {
		return do(ctx, say)
	})
}

// With1 is a function that takes the output of another step.
func With1[A, T any](do func(context.Context, Say, A) (T, error), a *Step[A]) Work[T] {
	return work(do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]))
	}, a)
}

// With2 is a function that takes the outputs of two other steps.
func With2[A, B, T any](do func(context.Context, Say, A, B) (T, error), a *Step[A], b *Step[B]) Work[T] {
	return work(do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]), arg[B](in[1]))
	}, a, b)
}

// With3 is a function that takes the outputs of three other steps.
func With3[A, B, C, T any](do func(context.Context, Say, A, B, C) (T, error),
	a *Step[A], b *Step[B], c *Step[C]) Work[T] {
	return work(do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]), arg[B](in[1]), arg[C](in[2]))
	}, a, b, c)
}

// With4 is a function that takes the outputs of four other steps.
func With4[A, B, C, D, T any](do func(context.Context, Say, A, B, C, D) (T, error),
	a *Step[A], b *Step[B], c *Step[C], d *Step[D]) Work[T] {
	return work(do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		return do(ctx, say, arg[A](in[0]), arg[B](in[1]), arg[C](in[2]), arg[D](in[3]))
	}, a, b, c, d)
}

// WithAll is a function that takes the outputs of any number of other steps of one type, in their order.
func WithAll[A, T any](do func(context.Context, Say, []A) (T, error), all []*Step[A]) Work[T] {
	inputs := make([]Node, len(all))
	for i, a := range all {
		inputs[i] = a
	}
	return work(do == nil, func(ctx context.Context, say Say, in []any) (T, error) {
		outputs := make([]A, len(in))
		for i := range in {
			outputs[i] = arg[A](in[i])
		}
		return do(ctx, say, outputs)
	}, inputs...)
}

func work[T any](empty bool, do func(context.Context, Say, []any) (T, error), inputs ...Node) Work[T] {
	w := Work[T]{given: true, inputs: inputs, do: do}
	if empty {
		w.do = nil
	}
	return w
}

// arg gives a decoded output its type back; a nil interface has none to assert.
func arg[A any](v any) A {
	a, _ := v.(A)
	return a
}
