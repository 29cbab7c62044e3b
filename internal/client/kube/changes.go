package kube

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rewatch is how long a broken watch rests before it is opened again.
const rewatch = time.Second

// Selection is a set of objects to watch.
type Selection struct {
	List    client.ObjectList // its kind
	Options []client.ListOption
}

// Changes signals after every change to the selected objects until ctx ends. Signals are merged while no receiver
// listens. A watch that cannot be opened (the API server is away, the kind is not there yet) is tried again, so a
// listener should also look now and then without a signal.
func (c *Cluster) Changes(ctx context.Context, selections ...Selection) <-chan struct{} {
	changed := make(chan struct{}, 1)
	for _, s := range selections {
		go c.signal(ctx, s, changed)
	}
	return changed
}

func (c *Cluster) signal(ctx context.Context, s Selection, changed chan<- struct{}) {
	for ctx.Err() == nil {
		if w, err := c.Watch(ctx, s.List, s.Options...); err == nil {
			for range w.ResultChan() {
				select {
				case changed <- struct{}{}:
				default: // one is waiting already
				}
			}
			w.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(rewatch):
		}
	}
}
