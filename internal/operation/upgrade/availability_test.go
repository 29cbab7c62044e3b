package upgrade

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestTimeWithoutAnswersIsMeasured(t *testing.T) {
	var away atomic.Bool
	var asked atomic.Int64
	p := startProbe(t.Context(), func(ctx context.Context) error {
		asked.Add(1)
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	})
	until := func(n int64) {
		for end := time.Now().Add(30 * time.Second); asked.Load() < n && time.Now().Before(end); {
			<-time.After(ProbeEvery / 10)
		}
	}
	until(3)
	away.Store(true)
	began := time.Now()
	until(asked.Load() + 5)
	away.Store(false)
	until(asked.Load() + 3)
	took := time.Since(began) + 10*ProbeEvery
	m := p.Stop()
	if m.Failed < 4 || m.Requests <= m.Failed || m.Longest < 3*ProbeEvery || m.Longest > took || m.Away != m.Longest ||
		m.Last != "connection refused" || !strings.Contains(m.String(), "was away for") {
		t.Errorf("%+v: %s", m, m)
	}
}

func TestAnAPIThatAnswersIsNeverAway(t *testing.T) {
	p := startProbe(t.Context(), func(context.Context) error { return nil })
	for end := time.Now().Add(30 * time.Second); p.SoFar().Requests < 3 && time.Now().Before(end); {
		<-time.After(ProbeEvery)
	}
	if m := p.Stop(); m.Requests < 3 || m.Failed+int(m.Longest) != 0 || !strings.Contains(m.String(), "answered all") {
		t.Errorf("%+v: %s", m, m)
	}
}

// An API that is away when the measurement ends was away until then.
func TestTheEndCountsToo(t *testing.T) {
	p := startProbe(t.Context(), func(context.Context) error { return errors.New("no route to host") })
	for end := time.Now().Add(30 * time.Second); p.SoFar().Requests < 3 && time.Now().Before(end); {
		<-time.After(ProbeEvery)
	}
	if m := p.Stop(); m.Failed != m.Requests || m.Longest < 2*ProbeEvery {
		t.Errorf("%+v: %s", m, m)
	}
}
