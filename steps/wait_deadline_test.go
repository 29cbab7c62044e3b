package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// A look that may take as long as the whole wait began late: the wait ends when it said, and tells what the look before
// saw.
func TestNoLookOutlastsItsWait(t *testing.T) {
	for name, tt := range map[string]struct {
		missing string
		err     error
		cutOff  string // what the second look saw until it was cut off; empty: an error alone
		want    string
	}{
		"the look before saw something": {missing: "an upload", want: "waited 1m for the release; last seen: an upload"},
		"the look that was cut off saw a part": {missing: "an upload", cutOff: "the management cluster does not answer",
			want: "last seen: an upload"},
		"it could not look": {err: errors.New("connection refused"), want: "last seen: could not look: " +
			"connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l clustertest.Messages
				looks, began := 0, time.Now()
				w := wait.Wait{What: "the release", Within: time.Minute, Each: time.Minute, Every: 50 * time.Second}
				err := w.Until(t.Context(), l.Add, func(ctx context.Context) (string, error) {
					if looks++; looks == 1 {
						return tt.missing, tt.err
					}
					<-ctx.Done()
					if tt.cutOff != "" {
						return tt.cutOff, nil
					}
					return "", ctx.Err()
				})
				if took := time.Since(began); took != time.Minute || looks != 2 {
					t.Errorf("it took %s and %d looks, it declares a minute", took, looks)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %s", err, tt.want)
				}
			})
		})
	}
}

// A first look that hangs is said to have seen nothing.
func TestAFirstLookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := wait.Wait{What: "it", Within: time.Minute, Each: time.Hour}.Until(t.Context(), t.Logf,
			func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		if took := time.Since(began); took != time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestPaceSlowsDownAndStartsAgain(t *testing.T) {
	p := &wait.Pace{First: 2 * time.Second, Longest: 5 * time.Second}
	var got []time.Duration
	for range 4 {
		got = append(got, p.Next()/time.Millisecond)
	}
	p.Reset()
	got = append(got, p.Next()/time.Millisecond)
	if want := []time.Duration{2000, 3000, 4500, 5000, 2000}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
