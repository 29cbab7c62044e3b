// Package availability measures how long the Kubernetes API of a cluster does not answer, while something changes it.
package availability

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// Every is the time between the beginnings of two requests.
	Every = 100 * time.Millisecond
	// within bounds one request: a client would not wait longer before it tries again.
	within = 2 * time.Second
	// path is read from etcd at each request.
	path = "/api/v1/namespaces/kube-system"
	// most is far above the size of a Namespace.
	most = 1 << 20
)

// Measure is what was seen of an API.
type Measure struct {
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// Longest is the longest time between two answers, or to the end of the measurement, of those in which a request
	// failed; 0: none did.
	Longest time.Duration `json:"longestNs"`
	// Away is the sum of those times.
	Away time.Duration `json:"awayNs"`
	// Last is why a request failed last.
	Last string `json:"last,omitempty"`
}

// String is "the API did not answer 12 of 3000 requests; it was away for 1.2s at most, and for 2.4s in all".
func (m Measure) String() string {
	if m.Failed == 0 {
		return fmt.Sprintf("the API answered all of %d requests, one every %s", m.Requests, Every)
	}
	return fmt.Sprintf("the API did not answer %d of %d requests, one every %s; it was away for %s at most, and for %s in "+
		"all", m.Failed, m.Requests, Every, m.Longest.Round(Every), m.Away.Round(Every))
}

// Probe asks an API until it is stopped: each request over a connection of its own, as a new client would.
type Probe struct {
	ask  func(context.Context) error
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	measure  Measure
	answered time.Time // when it answered last
	failing  bool      // since then
}

// Start begins to ask.
func Start(ctx context.Context, c *kube.Cluster) *Probe {
	return start(ctx, func(ctx context.Context) error {
		_, err := c.GetAnew(ctx, path, most)
		return err
	})
}

func start(ctx context.Context, ask func(context.Context) error) *Probe {
	p := &Probe{ask: ask, answered: time.Now()}
	ctx, p.stop = context.WithCancel(ctx)
	p.done.Go(func() {
		ticker := time.NewTicker(Every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.once(ctx)
			}
		}
	})
	return p
}

func (p *Probe) once(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := p.ask(asking)
	if ctx.Err() != nil {
		return // stopped meanwhile: no answer is no failure
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measure.Requests++
	if err != nil {
		p.measure.Failed++
		p.failing, p.measure.Last = true, err.Error()
		return
	}
	p.answeredAt(time.Now())
}

// answeredAt ends a time without answers.
func (p *Probe) answeredAt(now time.Time) {
	if p.failing {
		away := now.Sub(p.answered)
		p.measure.Longest, p.measure.Away = max(p.measure.Longest, away), p.measure.Away+away
	}
	p.answered, p.failing = now, false
}

// SoFar is what was seen until now.
func (p *Probe) SoFar() Measure {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.measure
}

// Stop ends it and gives what was seen.
func (p *Probe) Stop() Measure {
	p.stop()
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answeredAt(time.Now())
	return p.measure
}
