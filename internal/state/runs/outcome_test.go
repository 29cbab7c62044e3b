package runs

import (
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// TestOutcomeOfSeveralGraphs: a run that was killed in its second graph has not finished with its first one.
func TestOutcomeOfSeveralGraphs(t *testing.T) {
	begun, ended := flow.Event{Kind: flow.RunStarted}, flow.Event{Kind: flow.RunFinished}
	failed := flow.Event{Kind: flow.RunFinished, Err: "no"}
	for _, tt := range []struct {
		events []flow.Event
		want   End
	}{
		{[]flow.Event{begun, ended}, Finished},
		{[]flow.Event{begun, ended, begun}, Killed},
		{[]flow.Event{begun, ended, begun, failed}, Failed},
		{[]flow.Event{begun, ended, begun, ended}, Finished},
	} {
		if end, _ := (Run{Events: tt.events}).Outcome(); end != tt.want {
			t.Errorf("%v: %s, want %s", tt.events, end, tt.want)
		}
	}
}
