package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// A wait without any time looks once, with the time of one look.
func TestWaitWithoutTimeLooksOnce(t *testing.T) {
	looks := 0
	see := func(missing string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			looks++
			return missing, ctx.Err()
		}
	}
	if err := (Wait{What: "the pair"}).Until(t.Context(), t.Logf, see("")); err != nil || looks != 1 {
		t.Errorf("nothing is missing: %d looks, %v", looks, err)
	}
	var late *TimeoutError
	if err := (Wait{What: "the pair"}).Until(t.Context(), t.Logf, see("one")); !errors.As(err, &late) || looks != 2 {
		t.Errorf("one is missing: %d looks, %v", looks, err)
	}
}

func TestWaitLooksUntilNothingIsMissing(t *testing.T) {
	var l lineRecorder
	answers := []string{"both", "one", ""}
	err := Wait{What: "the pair", Within: time.Minute, Every: time.Millisecond}.Until(t.Context(), l.say,
		func(context.Context) (string, error) {
			missing := answers[0]
			answers = answers[1:]
			return missing, nil
		})
	if err != nil || len(answers) > 0 {
		t.Fatalf("%v, %d answers unheard", err, len(answers))
	}
	if got := strings.Join(l.lines, "|"); got != "waiting for the pair: both|waiting for the pair: one" {
		t.Errorf("said %s", got)
	}
}

func TestWaitTellsWhatItSawLast(t *testing.T) {
	var l lineRecorder
	err := Wait{What: "the servers", Within: 20 * time.Millisecond, Every: time.Millisecond}.Until(t.Context(), l.say,
		func(context.Context) (string, error) {
			return "2 of 3 servers exist", nil
		})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 of 3 servers exist") ||
		!strings.Contains(err.Error(), "the servers") {
		t.Errorf("got %v", err)
	}
}

// A request that the client's own rate limit would have sent only after the look tells nothing.
func TestWaitTellsWhatItSawBeforeALookWithoutARequest(t *testing.T) {
	var l lineRecorder
	limit, looks := rate.NewLimiter(rate.Every(time.Hour), 1), 0
	err := Wait{What: "the servers", Within: 20 * time.Millisecond, Every: time.Millisecond}.Until(t.Context(), l.say,
		func(ctx context.Context) (string, error) {
			looks++
			return "2 of 3 servers exist", limit.Wait(ctx)
		})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "last seen: 2 of 3 servers exist") ||
		looks < 2 {
		t.Errorf("got %v after %d looks", err, looks)
	}
}

func TestWaitGoesOnWhenItCannotLook(t *testing.T) {
	var l lineRecorder
	looks := 0
	err := Wait{What: "it", Within: time.Minute, Every: time.Millisecond}.Until(t.Context(), l.say,
		func(context.Context) (string, error) {
			if looks++; looks == 1 {
				return "", errors.New("connection refused")
			}
			return "", nil
		})
	if err != nil || looks != 2 || !strings.Contains(l.lines[0], "connection refused") {
		t.Errorf("%v after %d looks, said %v", err, looks, l.lines)
	}
}

func TestWaitEndsAtOnce(t *testing.T) {
	never := errors.New("immutable field")
	var l lineRecorder
	err := Wait{What: "it", Within: time.Minute}.Until(t.Context(), l.say, func(context.Context) (string,
		error) {
		return "", Final(never)
	})
	if !errors.Is(err, never) || len(l.lines) > 0 {
		t.Errorf("final error: %v, said %v", err, l.lines)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = Wait{What: "it", Within: time.Minute}.Until(ctx, l.say, func(context.Context) (string, error) {
		cancel()
		return "something", nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestWaitLooksWhenSomethingChanges(t *testing.T) {
	changes := make(chan struct{}, 1)
	var l lineRecorder
	looks := 0
	began := time.Now()
	err := Wait{What: "it", Within: time.Hour, Every: time.Hour, Changes: changes}.Until(t.Context(), l.say,
		func(context.Context) (string, error) {
			if looks++; looks == 1 {
				changes <- struct{}{}
				return "a change", nil
			}
			return "", nil
		})
	if err != nil || looks != 2 {
		t.Errorf("%v after %d looks", err, looks)
	}
	if time.Since(began) < LookGap {
		t.Error("a burst of changes is a burst of looks")
	}
}

// lineRecorder collects what a wait says.
type lineRecorder struct{ lines []string }

func (l *lineRecorder) say(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// The question why something is missing ends with the wait, and what it answers when it is cut off ends no wait.
func TestTheExplanationEndsWithTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := Wait{What: "the servers", Within: 10 * time.Second, Each: time.Minute,
			Explain: func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}}
		err := w.Until(t.Context(), t.Logf, func(context.Context) (string, error) { return "2 of 3 servers exist", nil })
		var late *TimeoutError
		if !errors.As(err, &late) || !strings.Contains(err.Error(), "2 of 3 servers exist") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != w.Within {
			t.Errorf("it took %s", took)
		}
	})
}
