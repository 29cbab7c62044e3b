package kubelet

import "sync"

// signal tells any number of goroutines that something changed. Take the channel, look at the state, then wait on the
// channel: a change between the look and the wait is not lost.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed at the next raise.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
