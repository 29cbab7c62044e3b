package situation

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// Hetzner is asked again soon after CAPH's objects have changed, and seldom while they say the same.
func TestHetznerIsAskedAgainOnChange(t *testing.T) {
	shows := func(state string) why.Situation {
		return why.Situation{Servers: []unstructured.Unstructured{{Object: map[string]any{
			"metadata": map[string]any{"name": "a"}, "status": map[string]any{"instanceState": state, "ready": true},
		}}}}
	}
	s := &cloudSight{}
	s.noticed(shows("initializing"))
	s.moved = false // as read leaves it
	old := func(age time.Duration, want bool) {
		t.Helper()
		if s.last.At = time.Now().Add(-age); s.old() != want {
			t.Errorf("an answer of %v ago is old: %v", age, !want)
		}
	}
	s.noticed(shows("initializing"))
	old(cloudFresh+time.Second, false)
	old(cloudStale+time.Second, true)
	s.noticed(shows("running"))
	old(cloudFresh-time.Second, false)
	old(cloudFresh+time.Second, true)
}
