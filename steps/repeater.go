package steps

import (
	"fmt"
	"sync"
	"time"
)

// repeater repeats the last line of long work that has nothing new to say, with the time that it has taken so far.
type repeater struct {
	say  func(line string)
	done chan struct{}
	over sync.WaitGroup

	mu    sync.Mutex
	line  string
	since time.Time
}

func newRepeater(say func(line string)) *repeater {
	p := &repeater{say: say, done: make(chan struct{})}
	p.over.Go(func() {
		ticker := time.NewTicker(imageStillEvery)
		defer ticker.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-ticker.C:
				p.repeat()
			}
		}
	})
	return p
}

// tell says a line.
func (p *repeater) tell(line string) {
	p.mu.Lock()
	p.line, p.since = line, time.Now()
	p.mu.Unlock()
	p.say(line)
}

func (p *repeater) repeat() {
	p.mu.Lock()
	line, since := p.line, p.since
	p.mu.Unlock()
	if line != "" {
		p.say(fmt.Sprintf("%s (for %s)", line, time.Since(since).Round(time.Second)))
	}
}

// end has it fall silent.
func (p *repeater) end() {
	close(p.done)
	p.over.Wait()
}
