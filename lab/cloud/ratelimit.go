package cloud

import (
	"net/http"
	"strconv"
	"time"
)

// RateLimit is a project's budget of requests: a bucket of Limit that refills evenly over Per.
type RateLimit struct {
	Limit int
	Per   time.Duration
}

// DefaultRateLimit is the real API's (docs.hetzner.cloud, "Rate Limiting"): 3600 an hour, one
// request coming back each second.
var DefaultRateLimit = RateLimit{Limit: 3600, Per: time.Hour}

// bucket is a RateLimit in use.
type bucket struct {
	limit  RateLimit
	tokens float64
	seen   time.Time
}

func newBucket(limit RateLimit, now time.Time) *bucket {
	return &bucket{limit: limit, tokens: float64(limit.Limit), seen: now}
}

// take uses one request of the limit, if one is left, and sets the rate limit headers of the reply.
func (b *bucket) take(now time.Time, header http.Header) bool {
	perSecond := float64(b.limit.Limit) / b.limit.Per.Seconds()
	b.tokens = min(float64(b.limit.Limit), b.tokens+now.Sub(b.seen).Seconds()*perSecond)
	b.seen = now
	ok := b.tokens >= 1
	if ok {
		b.tokens--
	}
	full := now.Add(time.Duration((float64(b.limit.Limit) - b.tokens) / perSecond * float64(time.Second)))
	header.Set("RateLimit-Limit", strconv.Itoa(b.limit.Limit))
	header.Set("RateLimit-Remaining", strconv.Itoa(int(b.tokens)))
	header.Set("RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
	return ok
}
