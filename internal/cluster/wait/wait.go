// Package wait polls, or watches, until a condition holds, and reports until then what is missing: with a deadline, an
// interval and the reason that was observed last. It also repeats requests that failed in passing.
package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

const (
	// LookWithin bounds one look, so that a server that swallows packets costs one look and not the wait.
	LookWithin = 15 * time.Second
	// LookEvery is the longest time between two looks where nothing announces changes, and the safety net where
	// something does.
	LookEvery = 2 * time.Second
	// LookGap keeps a burst of changes from becoming a burst of looks.
	LookGap = 100 * time.Millisecond
)

// Wait is a wait that knows what it waits for, and what was missing when it looked last.
type Wait struct {
	What    string          // "the load balancer"
	Within  time.Duration   // then it fails
	Every   time.Duration   // longest time between two looks; 0: LookEvery
	Each    time.Duration   // longest time of one look, which ends with the wait in any case; 0: LookWithin
	Pace    *Pace           // in place of Every: how long the time between two looks becomes; nil: it stays
	Changes <-chan struct{} // a signal leads to a look at once; nil: none come
	Explain Reason          // tells why what is missing is; nil: there is no explanation
	Whole   bool            // a look's text says what is waited for, too
}

// look looks once. missing says what is not there yet, empty when nothing is. An error means that it could
// not see; the wait goes on, unless the error is final.
type look func(ctx context.Context) (missing string, err error)

// Sentences joins what is missing; empty ones are left out.
func Sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "" }), "; ")
}

// Final marks an error after which waiting is of no use.
func Final(err error) error { return &FinalError{err} }

// FinalError is an error after which waiting is of no use.
type FinalError struct{ err error }

// Error implements error.
func (e *FinalError) Error() string { return e.err.Error() }

// Unwrap gives the error that was marked.
func (e *FinalError) Unwrap() error { return e.err }

// TimeoutError is a wait that ended without what it waited for.
type TimeoutError struct {
	What     string
	Within   time.Duration
	lastSeen string
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("waited %s for %s; last seen: %s", config.Duration(e.Within), e.What, e.lastSeen)
}

// Is makes it a context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Until looks until nothing is missing. It says what is, whenever that changes.
func (w Wait) Until(ctx context.Context, say flow.Say, see look) error {
	ends := time.Now().Add(w.Within)
	deadline := time.NewTimer(w.Within)
	defer deadline.Stop()
	each, last := cmp.Or(w.Each, LookWithin), ""
	rest := func() error {
		every := cmp.Or(w.Every, LookEvery)
		if w.Pace != nil {
			every = w.Pace.Next()
		}
		return w.pause(ctx, deadline.C, every, last)
	}
	for {
		bound := min(each, time.Until(ends))
		if w.Within <= 0 { // the time of several waits together is used up: what needs no wait is still found
			bound = each
		}
		looking, cancel := context.WithTimeout(ctx, bound)
		missing, err := see(looking)
		cutOff := looking.Err() != nil && time.Until(ends) <= 0
		cancel()
		var end *FinalError
		switch {
		case (err != nil || missing != "") && cutOff && last != "" && ctx.Err() == nil && !errors.As(err, &end):
			// The wait ended this look. What the look before it saw says more than that, and than the part that this one saw.
			return &TimeoutError{w.What, w.Within, last}
		case ctx.Err() != nil:
			return w.ended(ctx, last)
		case errors.As(err, &end):
			return end.err
		case errors.Is(err, hetzner.ErrToken):
			return fmt.Errorf("waiting for %s: %w", w.What, err)
		case err != nil && last != "" && strings.Contains(err.Error(), unsent):
			if err := rest(); err != nil {
				return err
			}
			continue
		case err != nil:
			missing = "could not look: " + why.ShortError(err.Error())
		case missing == "":
			return nil
		}
		if w.Explain != nil {
			// The wait's time bounds this look as well. What was cut off proves nothing.
			explaining, cancel := context.WithTimeout(ctx, min(each, time.Until(ends)))
			beside, err := w.Explain(explaining)
			late := explaining.Err() != nil
			cancel()
			if late {
				beside, err = "", nil
			}
			if err != nil {
				return fmt.Errorf("waiting for %s: %w; last seen: %s", w.What, err, missing)
			}
			missing = strings.TrimSuffix(missing+"; "+beside, "; ")
		}
		last = missing
		if w.Whole {
			say("waiting for %s", missing)
		} else {
			say("waiting for %s: %s", w.What, missing)
		}
		if err := rest(); err != nil {
			return err
		}
	}
}

// unsent is in the error of a request that the client's own rate limit would have sent only after the look's time, as
// golang.org/x/time/rate writes it. What the look before it saw says more.
const unsent = "would exceed context deadline"

// pause ends when it is time to look again.
func (w Wait) pause(ctx context.Context, deadline <-chan time.Time, every time.Duration, last string) error {
	gap, next := time.NewTimer(LookGap), time.NewTimer(every)
	defer gap.Stop()
	defer next.Stop()
	var changes <-chan struct{} // only after the gap
	for {
		select {
		case <-ctx.Done():
			return w.ended(ctx, last)
		case <-deadline:
			return &TimeoutError{w.What, w.Within, last}
		case <-gap.C:
			changes = w.Changes
		case <-changes:
			return nil
		case <-next.C:
			return nil
		}
	}
}

// ended is the error of a wait whose context ended first. Only a deadline makes what was last seen worth telling.
func (w Wait) ended(ctx context.Context, last string) error {
	cause := context.Cause(ctx)
	if last = cmp.Or(last, "nothing yet"); errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("waiting for %s, last seen: %s: %w", w.What, last, cause)
	}
	return fmt.Errorf("waiting for %s: %w", w.What, cause)
}

// Pace spaces looks that cost something: the first comes soon, each later one half as long again after it, up to a
// longest time. The look calls reset when it saw progress.
type Pace struct {
	First, Longest time.Duration
	current        time.Duration
}

// Next is the time until the next look.
func (p *Pace) Next() time.Duration {
	p.current = min(max(p.First, p.current*3/2), p.Longest)
	return p.current
}

// Reset begins again with the shortest time.
func (p *Pace) Reset() { p.current = 0 }

// Reason says what blocks what a wait depends on. After its error waiting is of no use.
type Reason func(ctx context.Context) (string, error)
