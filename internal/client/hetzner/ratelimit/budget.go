package ratelimit

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Budget is what the headers of an answer say of the project's requests.
type Budget struct {
	Limit     int       // the most that can be left: 3600 at Hetzner
	Remaining int       // requests that are left
	Full      time.Time // when Limit are left again, by this machine's clock
	PerSecond float64   // requests that come back

	runs int // that share it; 0 is one
}

// hour is the time in which the documented rate limit refills.
const hour = time.Hour

// Read reads the headers of an answer; ok is false where they do not tell. The refill is derived from the time until
// Full, because Hetzner may raise a project's limit, and the lab's hours are shorter.
func Read(header http.Header, now time.Time) (b Budget, ok bool) {
	number := func(name string) (n int64) {
		n, err := strconv.ParseInt(header.Get(name), 10, 64)
		ok = ok && err == nil && n >= 0
		return n
	}
	ok = true
	b.Limit, b.Remaining = int(number("RateLimit-Limit")), int(number("RateLimit-Remaining"))
	full := number("RateLimit-Reset")
	if !ok || b.Limit == 0 {
		return Budget{}, false
	}
	there := now // the clock that RateLimit-Reset is of
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		there = date
	}
	in := max(0, time.Unix(full, 0).Sub(there))
	b.Full = now.Add(in)
	b.PerSecond = float64(b.Limit) / hour.Seconds()
	if missing := b.Limit - b.Remaining; missing > 0 && in > 0 {
		b.PerSecond = float64(missing) / in.Seconds()
	}
	return b, true
}

// String is "200 of 3600 requests are left, 1.0 a second come back".
func (b Budget) String() string {
	if b.Limit == 0 {
		return "its answers do not say how many requests are left"
	}
	s := fmt.Sprintf("%d of %d requests are left", b.Remaining, b.Limit)
	if b.Low() { // nearly full, the seconds of RateLimit-Reset are too coarse
		s += fmt.Sprintf(", %.1f a second come back", b.PerSecond)
	}
	return s
}

// reserve is what is left to the controllers of the cluster. Of several runs each learns from its own answers alone
// what the others took, so that they slow their requests earlier.
func (b Budget) reserve() int {
	return min(b.Limit*max(1, b.runs)/reserveShare, b.Limit/mostReserve)
}

// Low says whether the command begins to slow its requests.
func (b Budget) Low() bool { return b.Remaining < b.reserve() }

// Enough is how many requests are left again when the command stops to slow its own: some more than the reserve, so
// that it does not begin again at once.
func (b Budget) Enough() int { return b.reserve() + b.reserve()/4 }

// spacing is the time between two requests of the command while it slows them: all runs together take what one takes
// alone.
func (b Budget) spacing() time.Duration {
	factor := float64(spacingFactor * max(1, b.runs))
	return min(time.Duration(factor/b.PerSecond*float64(time.Second)), mostPause)
}

// Until is how long it takes at least until so many requests are left; 0: they are.
func (b Budget) Until(wanted int) time.Duration {
	if wanted <= b.Remaining {
		return 0
	}
	return time.Duration(float64(wanted-b.Remaining) / b.PerSecond * float64(time.Second))
}
