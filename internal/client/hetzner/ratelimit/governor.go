// Package ratelimit keeps the command's requests within the rate limit of a Hetzner Cloud project, which all programs
// with a token of the project share: it reads the RateLimit headers of every answer, slows the command before requests
// are refused, so that the controllers of the cluster keep their part, and sends again what is refused all the same.
package ratelimit

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// reserveShare: while less than a tenth of the limit is left (360 of 3600), the command slows its requests. CAPH,
	// which pauses for five minutes once it is refused, and the Hetzner CCM go on at their own pace.
	reserveShare = 10
	// mostReserve: however many runs share the limit, they do not slow their requests while half of it is left.
	mostReserve = 2
	// spacingFactor: the slowed command sends one request in the time in which two come back. Where several runs share
	// the limit, all of them together do.
	spacingFactor = 2
	// leastPause and mostPause bound the pause after a refused request. It doubles from one refusal to the next.
	leastPause = 100 * time.Millisecond
	mostPause  = time.Minute
	// unknownPause is the first pause where the answers do not say what comes back: a second or two's at Hetzner.
	unknownPause = 2 * time.Second
	// patience is how long a request without a deadline waits after it was refused.
	patience = 5 * time.Minute
)

// Governor is the state that all requests of a process share. Its zero value does not work: New makes one.
type Governor struct {
	// Share is how many runs share the rate limit of the project, this one among them; nil: one. It must not wait, and is
	// set before the first request.
	Share func() int

	say  func(format string, args ...any)
	turn chan struct{} // held by the one request that waits for its time; the others queue for it

	mu      sync.Mutex
	counts  Counts
	last    Budget        // of the newest answer; zero: none has told
	slow    bool          // requests are slowed
	sent    time.Time     // when the newest request left
	pause   time.Duration // after the newest refusal; 0: an answer came since
	refused time.Time     // until then nothing is sent
}

// New makes a governor. say gets one message when the governor begins to slow requests, and one when it does not any
// longer; nil: none.
func New(say func(format string, args ...any)) *Governor {
	if say == nil {
		say = func(string, ...any) {}
	}
	return &Governor{say: say, turn: make(chan struct{}, 1)}
}

// Counts are the requests so far. A nil Governor has seen none.
func (g *Governor) Counts() Counts {
	if g == nil {
		return Counts{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts
}

// Budget is what the newest answer said of the rate limit; zero: none has said. A nil Governor knows none.
func (g *Governor) Budget() Budget {
	if g == nil {
		return Budget{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// Transport is next with every request slowed, and sent again where it is refused by 429. With a nil Governor it is
// next itself. A request whose context ends meanwhile fails with an *Error.
func (g *Governor) Transport(next http.RoundTripper) http.RoundTripper {
	if g == nil {
		return next
	}
	return &transport{governor: g, next: next}
}

type transport struct {
	governor *Governor
	next     http.RoundTripper
}

// CloseIdleConnections is what http.Client asks of its transport.
func (t *transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	g := t.governor
	w := &waiting{governor: g, began: time.Now()}
	g.count(func(c *Counts) { c.Requests++ })
	for {
		if err := w.forTurn(request.Context()); err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // as a RoundTripper has to
			}
			return nil, err
		}
		response, err := t.next.RoundTrip(request)
		if err != nil && w.refused > 0 && request.Context().Err() != nil {
			return nil, w.ended(request.Context(), 0)
		}
		if err != nil {
			return nil, err
		}
		limited := response.StatusCode == http.StatusTooManyRequests
		g.answered(response.Header, limited)
		if !limited {
			return response, nil
		}
		w.refused++
		again, ok := copyOf(request)
		if !ok {
			return response, nil
		}
		_ = response.Body.Close()
		request = again
	}
}

// copyOf is a request to be sent again; ok is false where its body cannot be.
func copyOf(request *http.Request) (again *http.Request, ok bool) {
	again = request.Clone(request.Context())
	if request.Body == nil || request.Body == http.NoBody {
		return again, true
	}
	if request.GetBody == nil {
		return nil, false
	}
	body, err := request.GetBody()
	again.Body = body
	return again, err == nil
}

// waiting is one request.
type waiting struct {
	governor *Governor
	began    time.Time
	slowed   bool
	waited   time.Duration
	refused  int
}

// forTurn returns when the request may be sent.
func (w *waiting) forTurn(ctx context.Context) error {
	g, from := w.governor, time.Now()
	defer func() {
		if took := time.Since(from); took > 0 && w.slowed {
			w.waited += took
			g.count(func(c *Counts) { c.Waited += took })
		}
	}()
	if w.refused > 0 {
		if _, bounded := ctx.Deadline(); !bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, w.began.Add(patience), errPatience)
			defer cancel()
		}
	}
	if g.until(ctx, from) <= 0 {
		return nil
	}
	w.slow()
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return w.ended(ctx, time.Since(from))
	}
	defer func() { <-g.turn }()
	for {
		wait := g.until(ctx, from)
		if wait <= 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return w.ended(ctx, time.Since(from))
		}
	}
}

// slow counts the request as one that waited, once.
func (w *waiting) slow() {
	if !w.slowed {
		w.slowed = true
		w.governor.count(func(c *Counts) { c.Slowed++ })
	}
}

func (w *waiting) ended(ctx context.Context, since time.Duration) error {
	g := w.governor
	g.mu.Lock()
	defer g.mu.Unlock()
	return &Error{Waited: w.waited + since, Refused: w.refused, Last: g.last, Err: context.Cause(ctx)}
}

func (g *Governor) count(change func(*Counts)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.counts)
}

// until is how long a request that waits since from still has to; where it is 0, the request counts as sent.
func (g *Governor) until(ctx context.Context, from time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if wait := g.refused.Sub(now); wait > 0 {
		return wait
	}
	g.last.runs = g.runs()
	if g.slow {
		wait := g.sent.Add(g.last.spacing()).Sub(now)
		// The reserve is a courtesy: a request is not lost for it. One with little time waits for half of it at most.
		if deadline, ok := ctx.Deadline(); ok && g.last.Remaining > 0 {
			wait = min(wait, from.Add(deadline.Sub(from)/2).Sub(now))
		}
		if wait > 0 {
			return wait
		}
	}
	g.sent = now
	return 0
}

// runs is how many runs share the rate limit.
func (g *Governor) runs() int {
	if g.Share == nil {
		return 1
	}
	return max(1, g.Share())
}

// answered takes note of an answer.
func (g *Governor) answered(header http.Header, refused bool) {
	g.mu.Lock()
	now := time.Now()
	b, told := Read(header, now)
	if told {
		b.runs = g.runs()
		g.last = b
	}
	was := g.slow
	switch {
	case refused:
		g.counts.Refused++
		g.refuse(now)
	case told:
		g.pause = 0
		g.slow = b.Low() || was && b.Remaining < b.Enough()
	default: // some answers that are errors do not tell
		g.pause = 0
		g.slow = was && g.last.Limit > 0
	}
	message, args := g.change(was, refused)
	g.mu.Unlock()
	if message != "" {
		g.say(message, args...)
	}
}

// refuse stops all requests for a while after a 429. g.mu is held.
func (g *Governor) refuse(now time.Time) {
	if now.Before(g.refused) {
		return // it had left before another was refused
	}
	first := unknownPause
	if g.last.Limit > 0 {
		first = max(leastPause, g.last.spacing())
	}
	g.pause = min(max(first, 2*g.pause), mostPause)
	g.refused, g.slow = now.Add(g.pause), true
}

// change is the message for an operator, where one is due. g.mu is held.
func (g *Governor) change(was, refused bool) (message string, args []any) {
	switch {
	case g.slow && !was && refused:
		return "Hetzner refuses requests with 429, the rate limit of the project (%s): requests of this command wait and " +
			"are sent again until a step's deadline; this run is slower meanwhile", []any{g.last}
	case g.slow && !was:
		return "the rate limit of the Hetzner project is low (%s): until %d are left, in %s at the earliest, this command " +
				"sends one request every %s, so that CAPH and the Hetzner CCM are not refused; this run is slower meanwhile",
			[]any{g.last, g.last.Enough(), short(g.last.Until(g.last.Enough())), short(g.last.spacing())}
	case was && !g.slow:
		return "the rate limit of the Hetzner project is not low any more (%s); so far the command sent %s",
			[]any{g.last, g.counts}
	}
	return "", nil
}
