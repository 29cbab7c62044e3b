package kubelet

import "time"

// backOff is the pause before something is tried again: it doubles from the least to the most.
type backOff struct {
	least, most time.Duration
	last        time.Duration
}

func (b *backOff) next() time.Duration {
	b.last = min(max(2*b.last, b.least), b.most)
	return b.last
}

func (b *backOff) reset() { b.last = 0 }

// toAPI is the back-off of calls to the API server: short, for a server that is about to come, and
// no burden to one that is away for long.
func toAPI() backOff { return backOff{least: 100 * time.Millisecond, most: 5 * time.Second} }
