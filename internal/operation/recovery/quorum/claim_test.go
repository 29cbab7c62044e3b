package quorum

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/recoverytest"
)

// claimedBy is the claim of another state folder.
func claimedBy(identity string) schema.PlacementGroup {
	return schema.PlacementGroup{ID: 7, Name: "slipway-k8s.restore", Type: "spread", Labels: map[string]string{
		"slipway-cluster": "k8s", clustertest.ReservedBy: identity, "slipway-host": "laptop"}}
}

// Two machines that survey one cluster at once both may have gone by the claim when they did. One of them goes on.
func TestOneOfTwoRecoversTheQuorum(t *testing.T) {
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp0: 4, recoverytest.Cp1: 6, recoverytest.Cp2: 5}}
	w, q := brokenCluster(t, e)
	plan, err := newPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	journal := flow.Memory()
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Before}); err != nil {
		t.Fatal(err)
	}
	if groups := w.Hetzner.PlacementGroups(); len(groups) > 0 {
		t.Errorf("before anybody agreed there is %+v", groups)
	}
	writes := len(w.Management.Writes())
	w.Hetzner.SetPlacementGroups(claimedBy("0123456789abcdef"))
	var recovering *claims.RecoveringError
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); !errors.As(err,
		&recovering) ||
		!strings.Contains(err.Error(), "delete the placement group slipway-k8s.restore") {
		t.Errorf("the second is told %v", err)
	}
	if len(e.Calls) != 1 || len(w.Management.Writes()) != writes {
		t.Errorf("the second has done %v, and wrote %d times", e.Calls, len(w.Management.Writes())-writes)
	}
	w.Hetzner.SetPlacementGroups()
	held := false
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All,
		Observe: func(ev flow.Event) {
			if ev.Step == "clear" && ev.Kind == flow.StepStarted {
				groups := w.Hetzner.PlacementGroups()
				held = len(groups) == 1 && groups[0].Name == "slipway-k8s.restore"
			}
		}}); err != nil {
		t.Fatal(err)
	}
	if !held {
		t.Error("servers were reset without a claim")
	}
	if groups := w.Hetzner.PlacementGroups(); len(groups) > 0 {
		t.Errorf("at its end it leaves %+v", groups)
	}
	recovered(t, e, w)
}

// A recovery whose claim another has taken over ends; one whose claim was given up, by a run that was killed right
// after, does not.
func TestARecoveryThatHasLostItsClaimEnds(t *testing.T) {
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp0: 4, recoverytest.Cp1: 6, recoverytest.Cp2: 5}}
	w, q := brokenCluster(t, e)
	plan, err := newPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	journal := flow.Memory()
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal,
		Targets: []string{"claim"}}); err != nil {
		t.Fatal(err)
	}
	w.Hetzner.SetPlacementGroups(claimedBy("0123456789abcdef"))
	var recovering *claims.RecoveringError
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); !errors.As(err,
		&recovering) || len(e.Calls) != 1 {
		t.Errorf("%v, after %v", err, e.Calls)
	}
	if err := q.unclaim(t.Context()); err != nil || len(w.Hetzner.PlacementGroups()) != 1 {
		t.Errorf("it gives another's claim up: %v", err)
	}
	w.Hetzner.SetPlacementGroups()
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); err != nil {
		t.Errorf("without a claim: %v", err)
	}
}
