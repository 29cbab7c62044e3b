package ratelimit

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// Counts are the requests of the command so far.
type Counts struct {
	Requests int           `json:"requests"` // those that were refused and sent again count once
	Slowed   int           `json:"slowed"`   // requests that waited for the rate limit
	Refused  int           `json:"refused"`  // answers 429
	Waited   time.Duration `json:"waitedNs"` // by all requests together
}

// String is "57 requests, 12 waited 34s in total for the rate limit, 3 answers were 429".
func (c Counts) String() string {
	s := text.Plural(c.Requests, "request", "requests")
	if c.Slowed > 0 {
		s += fmt.Sprintf(", %d waited %s in total for the rate limit", c.Slowed, short(c.Waited))
	}
	if c.Refused > 0 {
		s += fmt.Sprintf(", %s 429", text.Plural(c.Refused, "answer was", "answers were"))
	}
	return s
}

// Plus adds up what two runs counted.
func (c Counts) Plus(d Counts) Counts {
	return Counts{Requests: c.Requests + d.Requests, Slowed: c.Slowed + d.Slowed, Refused: c.Refused + d.Refused,
		Waited: c.Waited + d.Waited}
}

// Error says that a request ended while it waited for the rate limit.
type Error struct {
	Waited  time.Duration
	Refused int    // answers 429 to this request
	Last    Budget // what the last answer said
	Err     error  // what ended it
}

// Error says what was seen, and what to do next.
func (e *Error) Error() string {
	seen := "waited " + short(e.Waited) + " for the rate limit of the Hetzner Cloud API"
	if e.Refused > 0 {
		seen += fmt.Sprintf(", which refused it %s with 429", text.Plural(e.Refused, "time", "times"))
	}
	return fmt.Sprintf("%s (%s): %v; the limit counts all tokens and programs of the project together: wait, or find "+
		"what else sends requests, and run the same command again", seen, e.Last, e.Err)
}

// Unwrap is what ended the request.
func (e *Error) Unwrap() error { return e.Err }

// short is a duration for people.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Second / 10).String()
	}
	return d.Round(time.Second).String()
}

// errPatience ends a request that has no deadline of its own.
var errPatience = fmt.Errorf("given up after %v", patience)
