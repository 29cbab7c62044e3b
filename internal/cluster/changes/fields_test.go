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

// "plane" has the length of a hash.
func TestNamesOfTemplates(t *testing.T) {
	for name, want := range map[string]string{"k8s-control-plane": "k8s-control-plane", "k8s-general": "k8s-general",
		"k8s-control-plane-1a2b3": "k8s-control-plane"} {
		if is := WithoutHash(name); is != want {
			t.Errorf("%s without its hash is %s", name, is)
		}
	}
}
