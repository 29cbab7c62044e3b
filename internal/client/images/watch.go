package images

import (
	"context"
	"fmt"
	"io"
	"time"
)

// watch cancels a request when nothing was received for a while. A registry that is reachable by half accepts a
// connection and then says nothing.
type watch struct {
	patience time.Duration
	timer    *time.Timer
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

func newWatch(ctx context.Context, patience time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{patience: patience, ctx: ctx, cancel: cancel}
	w.timer = time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("it was silent for %s", patience))
	})
	return ctx, w
}

// end releases the watch.
func (w *watch) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain puts the reason in place of "context canceled".
func (w *watch) explain(err error) error {
	if err != nil && w.ctx.Err() != nil && context.Cause(w.ctx) != context.Canceled {
		return context.Cause(w.ctx)
	}
	return err
}

// body is a reply's body that resets the watch with each part that is received.
func (w *watch) body(inner io.ReadCloser) io.ReadCloser { return &watchedBody{inner, w} }

type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.timer.Reset(b.watch.patience)
	}
	if err != nil && err != io.EOF {
		err = b.watch.explain(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.watch.end()
	return b.ReadCloser.Close()
}
