package text

import (
	"testing"
	"time"
)

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 40 * time.Millisecond: "0.0s", 12340 * time.Millisecond: "12.3s", time.Minute: "1m00s",
		185 * time.Second: "3m05s", 62 * time.Minute: "1h02m",
	} {
		if got := Elapsed(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}
