package changes

import "testing"

// An API server writes a duration in its own way; that is no difference.
func TestDurationsAreCompared(t *testing.T) {
	for _, c := range []struct {
		live, wanted string
		same         bool
	}{{"20m0s", "20m", true}, {"1h0m0s", "60m", true}, {"20m0s", "21m", false}, {"a", "b", false}} {
		if got := like(c.live, c.wanted) == c.wanted; got != c.same {
			t.Errorf("%s and %s: the same is %v", c.live, c.wanted, got)
		}
	}
}
