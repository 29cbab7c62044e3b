package steps

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/platform"
)

// A whole bootstrap from another state folder makes nothing: no image, no management cluster, no object.
func TestASecondStateFolderMakesNothing(t *testing.T) {
	w := clustertest.New(t)
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	before, provider := w.Writes(), &clustertest.Provider{}
	plan, err := New(w.Config(), func() platform.Tools {
		tools := w.Tools()
		tools.Files, tools.Management = platform.FilesIn(t.TempDir()), provider
		return tools
	}())
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Graph.Run(t.Context(), flow.Options{Targets: plan.All})
	var reserved *claims.ReservedError
	if !errors.As(err, &reserved) || provider.Ensured > 0 || w.Writes() != before {
		t.Errorf("the second run: %v; %d management clusters, %d writes", err, provider.Ensured, w.Writes()-before)
	}
	for step, outcome := range outcomes(report) {
		if want := map[string]flow.Outcome{"preflight": flow.Ran, "reserve": flow.Failed}[step]; outcome != cmp.Or(want,
			flow.Skipped) {
			t.Errorf("step %s: %s", step, outcome)
		}
	}
}

// Another project's token is not handed to the management cluster: its Cluster API would make the whole cluster there,
// a second time.
func TestTheTokenOfAnotherProjectMakesNothing(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	reserved := w.Hetzner.PlacementGroups()[0].ID
	w.Hetzner.SetPlacementGroups()
	w.Hetzner.SetNetworks()
	w.Hetzner.SetLoadBalancers()
	w.Hetzner.SetServers()
	before := w.Writes()
	tools := w.Tools()
	tools.Token = platform.NewSecret("of another project")
	plan, err := New(w.Config(), tools)
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Bootstrap})
	want := fmt.Sprintf("placement group %d, which reserves k8s for this state folder, is not in the token's project",
		reserved)
	if err == nil || !strings.Contains(err.Error(), want) || w.Writes() != before {
		t.Errorf("with the token of another project: %v; %d writes", err, w.Writes()-before)
	}
	if err := situation.CheckEndpoint(t.Context(), plan.b.cfg, plan.b.tools, plan.b.sources,
		clustertest.LoadBalancerIP); !situation.IsLost(err) || !strings.Contains(err.Error(), "nothing of cluster k8s is "+
		"in the token's project") {
		t.Errorf("of the address it says %v", err)
	}

	// Nobody is left who has made the cluster.
	w.Provider.There = false
	if v := plan.b.verifyReserve(t.Context(),
		Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerUnknown ||
		!strings.Contains(v.Reason(), "but cluster k8s is there") {
		t.Errorf("while the cluster answers it is said to be %v: %s", v.Answer(), v.Reason())
	}
	w.Workload.CloseClientConnections()
	w.Workload.Close()
	if v := plan.b.verifyReserve(t.Context(), Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerGone {
		t.Errorf("where nothing is left it is said to be %v: %s", v.Answer(), v.Reason())
	}
	w.Provider.There = true

	// Before there was anybody who could make the cluster, a reservation that was deleted is made again.
	early, err := New(w.Config(), func() platform.Tools {
		tools := w.Tools()
		tools.Files, tools.Management = platform.FilesIn(t.TempDir()), &clustertest.Provider{}
		return tools
	}())
	if err != nil {
		t.Fatal(err)
	}
	if v := early.b.verifyReserve(t.Context(), Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerGone {
		t.Errorf("early it is said to be %v: %s", v.Answer(), v.Reason())
	}
	w.Hetzner.SetNetworks(schema.Network{ID: 77, Name: "k8s", Labels: clustertest.OwnedByCAPH, IPRange: "10.10.0.0/16"})
	if v := plan.b.verifyReserve(t.Context(), Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerGone {
		t.Errorf("with a network of the cluster it is said to be %v: %s", v.Answer(), v.Reason())
	}
}
