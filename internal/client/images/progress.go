package images

import (
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// Progress adds up what is fetched for several images, and reports it now and then. A nil one reports nothing.
type Progress struct {
	say   flow.Say
	every time.Duration

	mu      sync.Mutex
	said    time.Time
	fetched int64
	size    int64 // of what is known so far
	now     string
}

// NewProgress reports at most once in a while.
func NewProgress(say flow.Say, every time.Duration) *Progress {
	return &Progress{say: say, every: every, said: time.Now()}
}

// Fetched is how many bytes of layers were received.
func (p *Progress) Fetched() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fetched
}

// expect adds the size of a layer that will be fetched.
func (p *Progress) expect(size int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size += size
}

// add counts bytes that were received.
func (p *Progress) add(n int, of string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetched += int64(n)
	p.now = of
	if time.Since(p.said) >= p.every {
		p.said = time.Now()
		p.say("fetched %d of %d MB, now %s", p.fetched>>20, p.size>>20, p.now)
	}
}
