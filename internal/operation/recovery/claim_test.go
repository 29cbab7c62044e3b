package recovery_test

import (
	"context"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/steps"
)

// The step claim of a run that resumes runs again where another state folder has taken the claim meanwhile.
func TestAClaimThatWasTakenOverIsNotResumed(t *testing.T) {
	w := clustertest.New(t)
	g, journal, runs := flow.New("recovery"), flow.Memory(), 0
	claim := recovery.AddClaim(g, w.Config(), w.Tools(), "the recovery is this folder's", nil,
		flow.Do(func(context.Context, flow.Say) (steps.Reservation, error) {
			runs++
			return steps.Reservation{By: "mine"}, nil
		}))
	run := func(want int) {
		t.Helper()
		if _, err := g.Run(t.Context(), flow.Options{Journal: journal, Targets: []string{claim.Name()}}); err != nil {
			t.Fatal(err)
		}
		if runs != want {
			t.Fatalf("the claim was taken %d times, not %d", runs, want)
		}
	}
	run(1)
	run(1)
	other := hetzner.RestoreClaim(w.Config().ClusterName)
	if _, err := other.Reserve(t.Context(), w.Tools().Hetzner, "another", "host"); err != nil {
		t.Fatal(err)
	}
	run(2)
}
