package talos

import (
	"context"
	"sync"
)

// watched is a value with a notification of its changes.
type watched[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{} // closed and replaced with every change
}

func newWatched[T any](value T) *watched[T] {
	return &watched[T]{value: value, changed: make(chan struct{})}
}

// get returns the value and a channel that is closed when it changes.
func (w *watched[T]) get() (T, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.value, w.changed
}

// set replaces the value.
func (w *watched[T]) set(value T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.value = value
	close(w.changed)
	w.changed = make(chan struct{})
}

// await returns the first value, of the present one and those to come, that ok holds for.
func (w *watched[T]) await(ctx context.Context, ok func(T) bool) (T, error) {
	for {
		value, changed := w.get()
		if ok(value) {
			return value, nil
		}
		select {
		case <-ctx.Done():
			return value, ctx.Err()
		case <-changed:
		}
	}
}
