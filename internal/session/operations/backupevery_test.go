package operations

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// TestRepeat lets days go by in no time: the schedule follows the last backup
// that lies there, without drifting; a failure is tried again and said; an
// interruption while it waits is a good end.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		last := began.Add(-2 * time.Hour) // of an earlier process
		var at []time.Duration
		var said []string
		fails := map[int]bool{2: true}
		err := repeat(ctx, 6*time.Hour,
			func(context.Context) (time.Time, error) { return last, nil },
			func(ctx context.Context) error {
				at = append(at, time.Since(began))
				if fails[len(at)] {
					return errors.New("the store is away")
				}
				last = time.Now()
				time.Sleep(time.Minute) // what it takes
				if len(at) == 5 {
					time.AfterFunc(time.Hour, func() { cancel(flow.ErrInterrupted) })
				}
				return ctx.Err()
			},
			func(format string, args ...any) { said = append(said, format) })
		if err != nil {
			t.Errorf("the end is %v", err)
		}
		want := []time.Duration{4 * time.Hour, 10 * time.Hour, 10*time.Hour + 5*time.Minute, 16*time.Hour + 5*time.Minute,
			22*time.Hour + 5*time.Minute}
		if len(at) != len(want) {
			t.Fatalf("backups at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("backups at %v, want %v", at, want)
			}
		}
	})
}

// TestRepeatEnds wants an end for a mistake, an interruption at work, and a
// backup that takes longer than its period.
func TestRepeatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(context.Context) (time.Time, error) { return time.Time{}, nil }
		quiet := func(string, ...any) {}
		mistake := usage.Errorf("no such key")
		if err := repeat(t.Context(), time.Hour, never, func(context.Context) error { return mistake },
			quiet); !errors.Is(err, mistake) {
			t.Errorf("a mistake: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := flow.ErrInterrupted
		err := repeat(ctx, time.Hour, never, func(ctx context.Context) error { cancel(cause); return context.Cause(ctx) },
			quiet)
		if !errors.Is(err, cause) {
			t.Errorf("interrupted at work: %v", err)
		}
		ctx, cancel = context.WithCancelCause(t.Context())
		var ended error
		err = repeat(ctx, time.Hour, never, func(ctx context.Context) error {
			<-ctx.Done()
			ended = context.Cause(ctx)
			time.AfterFunc(time.Minute, func() { cancel(cause) })
			return ended
		}, quiet)
		if err != nil || ended == nil || !strings.Contains(ended.Error(), "was not done after 1h") {
			t.Errorf("too long: %v, %v", ended, err)
		}
	})
}
