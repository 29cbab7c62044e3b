package cloud

import (
	"fmt"
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

// LowerBudget leaves the project so many requests, which come back as before. With a limit that is not 0 no more than
// that come back, as many in the same time. The returned function gives the configured limit back, whole.
func (c *Cloud) LowerBudget(remaining, limit int) (undo func(), err error) {
	allowed := c.config.RateLimit
	if limit > 0 {
		allowed.Limit = limit
	}
	if remaining < 0 || limit < 0 || remaining > allowed.Limit {
		return nil, fmt.Errorf("lowering the rate limit: %d requests left of a limit of %d: neither can be negative, and no "+
			"more can be left than the limit", remaining, allowed.Limit)
	}
	set := func(limit RateLimit, tokens int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bucket = newBucket(limit, now())
		c.bucket.tokens = float64(tokens)
	}
	set(allowed, remaining)
	return func() { set(c.config.RateLimit, c.config.RateLimit.Limit) }, nil
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
