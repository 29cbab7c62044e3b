package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/why"
)

const (
	// lookWithin bounds one look at the world, so that a server that swallows packets costs one look and not the wait.
	lookWithin = 15 * time.Second
	// lookEvery is the longest time between two looks where nothing announces changes, and the safety net where
	// something does.
	lookEvery = 2 * time.Second
	// lookGap keeps a burst of changes from becoming a burst of looks.
	lookGap = 100 * time.Millisecond
)

// wait is a wait that knows what it waits for, and what was missing when it looked last.
type wait struct {
	what    string          // "the load balancer"
	within  time.Duration   // then it fails
	every   time.Duration   // longest time between two looks; 0: lookEvery
	each    time.Duration   // longest time of one look, which ends with the wait in any case; 0: lookWithin
	pace    *pace           // in place of every: how long the time between two looks becomes; nil: it stays
	changes <-chan struct{} // a signal leads to a look at once; nil: none come
	because because         // tells why what is missing is; nil: nobody does
	whole   bool            // a look's words say what is waited for, too
}

// look looks at the world once. missing says what is not there yet, empty when nothing is. An error means that it could
// not see; the wait goes on, unless the error is final.
type look func(ctx context.Context) (missing string, err error)

// final marks an error that waiting will not mend.
func final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// waitError is a wait that ended without what it waited for.
type waitError struct {
	what     string
	within   time.Duration
	lastSeen string
}

func (e *waitError) Error() string {
	return fmt.Sprintf("waited %s for %s; last seen: %s", Duration(e.within), e.what, e.lastSeen)
}

// Is makes it a context.DeadlineExceeded.
func (e *waitError) Is(target error) bool { return target == context.DeadlineExceeded }

// until looks until nothing is missing. It says what is, whenever that changes.
func (w wait) until(ctx context.Context, say flow.Say, see look) error {
	ends := time.Now().Add(w.within)
	deadline := time.NewTimer(w.within)
	defer deadline.Stop()
	each, last := cmp.Or(w.each, lookWithin), ""
	for {
		looking, cancel := context.WithTimeout(ctx, min(each, time.Until(ends)))
		missing, err := see(looking)
		cutOff := looking.Err() != nil && time.Until(ends) <= 0
		cancel()
		var end *finalError
		switch {
		case err != nil && cutOff && last != "" && ctx.Err() == nil && !errors.As(err, &end):
			// The wait ended this look. What the look before it saw says more than that.
			return &waitError{w.what, w.within, last}
		case ctx.Err() != nil:
			return w.ended(ctx, last)
		case errors.As(err, &end):
			return end.err
		case errors.Is(err, hetzner.ErrToken):
			return fmt.Errorf("waiting for %s: %w", w.what, err)
		case err != nil:
			missing = "could not look: " + why.Unseen(err.Error())
		case missing == "":
			return nil
		}
		if w.because != nil {
			beside, err := w.because(ctx)
			if err != nil {
				return fmt.Errorf("waiting for %s: %w; last seen: %s", w.what, err, missing)
			}
			missing = strings.TrimSuffix(missing+"; "+beside, "; ")
		}
		last = missing
		if w.whole {
			say("waiting for %s", missing)
		} else {
			say("waiting for %s: %s", w.what, missing)
		}
		every := cmp.Or(w.every, lookEvery)
		if w.pace != nil {
			every = w.pace.next()
		}
		if err := w.pause(ctx, deadline.C, every, last); err != nil {
			return err
		}
	}
}

// pause ends when it is time to look again.
func (w wait) pause(ctx context.Context, deadline <-chan time.Time, every time.Duration, last string) error {
	gap, next := time.NewTimer(lookGap), time.NewTimer(every)
	defer gap.Stop()
	defer next.Stop()
	var changes <-chan struct{} // only after the gap
	for {
		select {
		case <-ctx.Done():
			return w.ended(ctx, last)
		case <-deadline:
			return &waitError{w.what, w.within, last}
		case <-gap.C:
			changes = w.changes
		case <-changes:
			return nil
		case <-next.C:
			return nil
		}
	}
}

// ended is the error of a wait whose context ended first. Only a deadline makes what was last seen worth telling.
func (w wait) ended(ctx context.Context, last string) error {
	cause := context.Cause(ctx)
	if last = cmp.Or(last, "nothing yet"); errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("waiting for %s, last seen: %s: %w", w.what, last, cause)
	}
	return fmt.Errorf("waiting for %s: %w", w.what, cause)
}

// pace spaces looks that cost something: the first comes soon, each later one half as long again after it, up to a longest time. The
// look calls reset when it saw progress.
type pace struct {
	first, longest time.Duration
	current        time.Duration
}

func (p *pace) next() time.Duration {
	p.current = min(max(p.first, p.current*3/2), p.longest)
	return p.current
}

func (p *pace) reset() { p.current = 0 }

// because says what keeps what a wait hangs on. Its error is what no waiting mends.
type because func(ctx context.Context) (string, error)
