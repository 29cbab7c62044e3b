package ratelimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// project is Hetzner's side: a bucket of limit requests that is full again after per.
type project struct {
	limit  int
	per    time.Duration
	left   float64
	skew   time.Duration // of its clock
	refuse func(n int) bool
	silent bool // no headers

	seen time.Time
	sent []time.Time // requests that arrived
	body []string
}

func (p *project) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	rate := float64(p.limit) / p.per.Seconds()
	if !p.seen.IsZero() {
		p.left = min(float64(p.limit), p.left+now.Sub(p.seen).Seconds()*rate)
	}
	p.seen, p.sent = now, append(p.sent, now)
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		p.body = append(p.body, string(data))
	}
	reply := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	if p.left < 1 || p.refuse != nil && p.refuse(len(p.sent)) {
		reply.StatusCode = http.StatusTooManyRequests
	} else {
		p.left--
	}
	if !p.silent {
		full := now.Add(p.skew + time.Duration((float64(p.limit)-p.left)/rate*float64(time.Second)))
		reply.Header.Set("Date", now.Add(p.skew).UTC().Format(http.TimeFormat))
		reply.Header.Set("RateLimit-Limit", strconv.Itoa(p.limit))
		reply.Header.Set("RateLimit-Remaining", strconv.Itoa(int(p.left)))
		reply.Header.Set("RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
	}
	return reply, nil
}

// notes are the messages for an operator.
type notes []string

func (n *notes) say(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

func send(ctx context.Context, t *testing.T, through http.RoundTripper, method, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1/v1/servers", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return through.RoundTrip(r)
}

func mustSend(t *testing.T, through http.RoundTripper, times int) {
	t.Helper()
	for range times {
		reply, err := send(t.Context(), t, through, http.MethodGet, "")
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", reply, err)
		}
	}
}

// Where much is left nothing waits, and nothing is said.
func TestPlenty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, hetzner := notes{}, &project{limit: 3600, per: time.Hour, left: 3600}
		g, began := New(said.say), time.Now()
		mustSend(t, g.Transport(hetzner), 3200)
		if time.Since(began) > 0 || len(said) > 0 || g.Counts() != (Counts{Requests: 3200}) {
			t.Errorf("after %v: %q, %+v", time.Since(began), said, g.Counts())
		}
	})
}

// Under the reserve the command takes half of what comes back, and says so once; so it does when it is over.
func TestSlows(t *testing.T) {
	for name, per := range map[string]time.Duration{"Hetzner": time.Hour, "lab": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said, hetzner := notes{}, &project{limit: 3600, per: per, left: 200, skew: -7 * time.Minute}
				g, began := New(said.say), time.Now()
				through := g.Transport(hetzner)
				mustSend(t, through, 21)
				apart := 2 * per / 3600
				if took := time.Since(began); took < 18*apart || took > 22*apart {
					t.Errorf("21 requests took %v, with two coming back every %v", took, apart)
				}
				if len(said) != 1 || !strings.Contains(said[0], "199 of 3600 requests are left") ||
					!strings.Contains(said[0], "until 450 are left") || !strings.Contains(said[0], "slower") {
					t.Errorf("it said %q", said)
				}
				if hetzner.left < 200 {
					t.Errorf("%v requests are left of 200: the command took all that came back", hetzner.left)
				}
				c := g.Counts()
				if c.Requests != 21 || c.Slowed != 20 || (c.Waited-time.Since(began)).Abs() > time.Millisecond {
					t.Errorf("after %v: %+v", time.Since(began), c)
				}
				for range 1000 {
					if mustSend(t, through, 1); len(said) == 2 {
						break
					}
				}
				before := time.Now()
				mustSend(t, through, 80) // down again, but not under the reserve
				if len(said) != 2 || !strings.Contains(said[1], "not low any more") || time.Since(before) > apart {
					t.Errorf("it said %q; 80 requests took %v", said, time.Since(before))
				}
			})
		})
	}
}

// A refused request is sent again, whole, when it may pass; who sent it does not see the refusal.
func TestRefusedIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, hetzner := notes{}, &project{limit: 3600, per: time.Hour, left: 0}
		g := New(said.say)
		reply, err := send(t.Context(), t, g.Transport(hetzner), http.MethodPost, "a body")
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", reply, err)
		}
		for _, body := range hetzner.body {
			if body != "a body" {
				t.Errorf("it sent %q", hetzner.body)
			}
		}
		c := g.Counts()
		if c.Requests != 1 || c.Refused != 1 || c.Slowed != 1 || len(hetzner.sent) != 2 || c.Waited < time.Second ||
			c.Waited > 5*time.Second {
			t.Errorf("%+v, sent %v", c, hetzner.sent)
		}
		if len(said) != 1 || !strings.Contains(said[0], "429") || !strings.Contains(said[0], "0 of 3600") {
			t.Errorf("it said %q", said)
		}
	})
}

// An endless 429 ends with the context, whose cause is in the error, and is not asked again without a pause.
func TestEndless(t *testing.T) {
	for name, silent := range map[string]bool{"with headers": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hetzner := &project{limit: 3600, per: time.Hour, left: 300, silent: silent,
					refuse: func(int) bool { return true }}
				said := notes{}
				g, began := New(said.say), time.Now()
				late := errors.New("the step has its deadline")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute, late)
				defer cancel()
				_, err := send(ctx, t, g.Transport(hetzner), http.MethodGet, "")
				var limited *Error
				if !errors.As(err, &limited) || !errors.Is(err, late) || time.Since(began) != 10*time.Minute {
					t.Fatalf("after %v: %v", time.Since(began), err)
				}
				if limited.Waited != 10*time.Minute || limited.Refused != len(hetzner.sent) || len(hetzner.sent) > 20 {
					t.Errorf("%+v, sent %d", limited, len(hetzner.sent))
				}
				for _, word := range []string{"waited 10m0s for the rate limit of the Hetzner Cloud API", "times with 429",
					late.Error(), "run the same command again"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%q does not say %q", err, word)
					}
				}
				if len(said) != 1 {
					t.Errorf("it said %q", said)
				}
			})
		})
	}
}

// Without a deadline a refused request is given up in the end.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hetzner := &project{limit: 3600, per: time.Hour, refuse: func(int) bool { return true }}
		began := time.Now()
		_, err := send(t.Context(), t, New(nil).Transport(hetzner), http.MethodGet, "")
		if limited := (*Error)(nil); !errors.As(err, &limited) || time.Since(began) != patience ||
			!strings.Contains(err.Error(), "given up after 5m0s") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// The reserve costs no request its life: the doctor asks twenty things within four seconds.
func TestReserveIsACourtesy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hetzner := &project{limit: 3600, per: time.Hour, left: 100}
		g := New(nil)
		through := g.Transport(&locked{next: hetzner})
		mustSend(t, through, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if reply, err := send(ctx, t, through, http.MethodGet, ""); err != nil || reply.StatusCode != http.StatusOK {
					t.Errorf("%v, %v", reply, err)
				}
			})
		}
		all.Wait()
		if g.Counts().Slowed == 0 {
			t.Error("nothing waited")
		}
	})
}

// Where nothing is left the reserve's exception does not hold: the command does not make refusals.
func TestNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hetzner := &project{limit: 3600, per: time.Hour, left: 1}
		through := New(nil).Transport(hetzner)
		mustSend(t, through, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := send(ctx, t, through, http.MethodGet, "")
		if limited := (*Error)(nil); !errors.As(err, &limited) || limited.Refused != 0 || len(hetzner.sent) != 1 {
			t.Errorf("sent %d: %v", len(hetzner.sent), err)
		}
	})
}

// Others' requests wait while one is refused: not each of them finds out for itself.
func TestOneFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(20 * time.Second)
		hetzner := &project{limit: 3600, per: time.Hour, left: 300,
			refuse: func(int) bool { return time.Now().Before(until) }}
		g := New(nil)
		through := g.Transport(&locked{next: hetzner})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				mustSend(t, through, 1)
			})
		}
		all.Wait()
		if c := g.Counts(); c.Refused > 5 || c.Requests != 10 {
			t.Errorf("%+v", c)
		}
	})
}

// A body that can be read once only cannot be sent again: the caller gets the refusal.
func TestBodyThatIsGone(t *testing.T) {
	hetzner := &project{limit: 3600, per: time.Hour, refuse: func(n int) bool { return n == 1 }}
	r, err := http.NewRequest(http.MethodPost, "http://127.0.0.1/v1/servers", struct{ io.Reader }{bytes.NewReader(nil)})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := New(nil).Transport(hetzner).RoundTrip(r)
	if err != nil || reply.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%v, %v", reply, err)
	}
}

// hcloud-go waits 1 to 16 s after a 429, whatever its headers say, and gives up after five: it must not see one.
func TestClientOfHetzner(t *testing.T) {
	refusals := 6
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Add(2*time.Second).Unix(), 10))
		if refusals--; refusals >= 0 {
			w.Header().Set("RateLimit-Remaining", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"code":"rate_limit_exceeded","message":"limit reached"}}`)
			return
		}
		w.Header().Set("RateLimit-Remaining", "3000")
		fmt.Fprint(w, `{"locations":[],"meta":{"pagination":{}}}`)
	}))
	defer server.Close()
	g := New(nil)
	client := hcloud.NewClient(hcloud.WithEndpoint(server.URL), hcloud.WithToken("t"),
		hcloud.WithHTTPClient(&http.Client{Transport: g.Transport(http.DefaultTransport)}))
	if _, _, err := client.Location.List(t.Context(), hcloud.LocationListOpts{}); err != nil {
		t.Fatal(err)
	}
	if c := g.Counts(); c.Requests != 1 || c.Refused != 6 {
		t.Errorf("%+v", c)
	}
}

func TestCounts(t *testing.T) {
	for want, c := range map[string]Counts{
		"1 request":   {Requests: 1},
		"57 requests": {Requests: 57},
		"57 requests, 12 waited 34s in total for the rate limit, 1 answer was 429": {Requests: 57, Slowed: 12, Refused: 1,
			Waited: 34 * time.Second},
	} {
		if c.String() != want {
			t.Errorf("%q, not %q", c, want)
		}
	}
}

func TestRead(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	header := func(limit, remaining, reset string) http.Header {
		return http.Header{"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}, "Ratelimit-Reset": {reset}}
	}
	if b, ok := Read(header("3600", "600", "1800003000"), now); !ok || b.PerSecond != 1 ||
		b.Full != now.Add(3000*time.Second) {
		t.Errorf("%+v, %v", b, ok)
	}
	// no time is left: the documented rate
	if b, ok := Read(header("3600", "0", "1799999999"), now); !ok || b.PerSecond != 1 {
		t.Errorf("%+v, %v", b, ok)
	}
	for _, wrong := range []http.Header{{}, header("", "1", "2"), header("3600", "x", "2"), header("0", "0", "2"),
		header("3600", "-1", "2")} {
		if b, ok := Read(wrong, now); ok {
			t.Errorf("%v is read as %+v", wrong, b)
		}
	}
}

// locked lets one request through at a time.
type locked struct {
	mu   sync.Mutex
	next http.RoundTripper
}

func (l *locked) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next.RoundTrip(r)
}

// Runs that share the limit begin to slow their requests earlier, at half of it at the latest, and all of them together
// take half of what comes back. What counts is how many there are when a request is sent.
func TestShare(t *testing.T) {
	for runs, low := range map[int]int{0: 360, 1: 360, 3: 1080, 9: 1800} {
		synctest.Test(t, func(t *testing.T) {
			said, hetzner := notes{}, &project{limit: 3600, per: time.Hour, left: float64(low) + 10}
			g, now := New(said.say), runs
			g.Share = func() int { return now }
			through, began := g.Transport(hetzner), time.Now()
			mustSend(t, through, 10)
			if time.Since(began) > 0 || len(said) > 0 {
				t.Errorf("%d runs: it is slow after %v, and says %q", runs, time.Since(began), said)
			}
			mustSend(t, through, 2) // the first of which leaves less
			apart := time.Duration(max(1, runs)) * 2 * time.Second
			if took := time.Since(began); took < apart-apart/10 || took > apart+apart/10 || len(said) != 1 {
				t.Errorf("%d runs: the next request left after %v, want %v; it says %q", runs, took, apart, said)
			}
			now, began = 1, time.Now()
			mustSend(t, through, 1)
			if took := time.Since(began); took > 2500*time.Millisecond {
				t.Errorf("%d runs: alone, the next request left after %v", runs, took)
			}
		})
	}
}
