package kubelet

import "sync"

// notifier tells any number of goroutines that something changed. Take the channel, look at the state, then wait on the
// channel: a change between the look and the wait is not lost.
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
