package kubelet

import "sync"

// notifier notifies any number of goroutines of a change. Take the channel, read the state, then wait on the channel: a
// change in between is not lost.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed at the next raise.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) raise() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
