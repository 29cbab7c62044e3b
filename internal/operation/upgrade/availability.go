package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// ProbeEvery is the time between the beginnings of two requests.
	ProbeEvery = 100 * time.Millisecond
	// probeWithin bounds one request: a client would not wait longer before it tries again.
	probeWithin = 2 * time.Second
	// probePath is read from etcd at each request.
	probePath = "/api/v1/namespaces/kube-system"
	// mostProbed is far above the size of a Namespace.
	mostProbed = 1 << 20
)

// Availability is what was seen of an API.
type Availability struct {
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
func (m Availability) String() string {
	if m.Failed == 0 {
		return fmt.Sprintf("the API answered all of %d requests, one every %s", m.Requests, ProbeEvery)
	}
	return fmt.Sprintf("the API did not answer %d of %d requests, one every %s; it was away for %s at most, and for %s in "+
		"all", m.Failed, m.Requests, ProbeEvery, m.Longest.Round(ProbeEvery), m.Away.Round(ProbeEvery))
}

// And sums up two measurements, one after the other.
func (m Availability) And(later Availability) Availability {
	later.Requests, later.Failed, later.Away = m.Requests+later.Requests, m.Failed+later.Failed, m.Away+later.Away
	later.Longest, later.Last = max(m.Longest, later.Longest), cmp.Or(later.Last, m.Last)
	return later
}

// AvailabilityProbe asks an API until it is stopped: each request over a connection of its own, as a new client would.
type AvailabilityProbe struct {
	ask  func(context.Context) error
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	measure  Availability
	answered time.Time // when it answered last
	failing  bool      // since then
}

// StartProbe begins to ask.
func StartProbe(ctx context.Context, c *kube.Cluster) *AvailabilityProbe {
	return startProbe(ctx, func(ctx context.Context) error {
		_, err := c.GetAnew(ctx, probePath, mostProbed)
		return err
	})
}

func startProbe(ctx context.Context, ask func(context.Context) error) *AvailabilityProbe {
	p := &AvailabilityProbe{ask: ask, answered: time.Now()}
	ctx, p.stop = context.WithCancel(ctx)
	p.done.Go(func() {
		ticker := time.NewTicker(ProbeEvery)
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

func (p *AvailabilityProbe) once(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, probeWithin)
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
func (p *AvailabilityProbe) answeredAt(now time.Time) {
	if p.failing {
		away := now.Sub(p.answered)
		p.measure.Longest, p.measure.Away = max(p.measure.Longest, away), p.measure.Away+away
	}
	p.answered, p.failing = now, false
}

// SoFar is what was seen until now.
func (p *AvailabilityProbe) SoFar() Availability {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.measure
}

// Stop ends it and gives what was seen.
func (p *AvailabilityProbe) Stop() Availability {
	p.stop()
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answeredAt(time.Now())
	return p.measure
}
