package steps

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/claims"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// TestBootstrapRecordsProjectAndManagementCluster holds what destroy later relies on.
func TestBootstrapRecordsProjectAndManagementCluster(t *testing.T) {
	w := clustertest.New(t)
	files := w.Tools().Files
	if err := (ownership.Record{Cluster: "k8s"}).Write(files); err != nil {
		t.Fatal(err)
	}
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := ownership.Read(files)
	if err != nil || r.Management == nil ||
		*r.Management != (ownership.Management{Provider: "fake", Name: "k8s-mgmt", UID: "management"}) {
		t.Errorf("recorded %+v, %v", r, err)
	}
	if groups := w.Hetzner.PlacementGroups(); len(groups) == 0 || r.Reservation != groups[0].ID {
		t.Errorf("the recorded reservation is %d of %v", r.Reservation, groups)
	}
}

// A token of another project is found before a target that does not go through the reservation.
func TestCheckProject(t *testing.T) {
	w := clustertest.New(t)
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	tools := w.Tools().WithDefaults()
	check := func() error { return claims.CheckProject(t.Context(), w.Config(), tools) }
	if err := check(); err != nil {
		t.Errorf("before the first run: %v", err)
	}
	record := ownership.Record{Cluster: "k8s"}
	if err := record.Write(plan.b.tools.Files); err != nil {
		t.Fatal(err)
	}
	if _, err := newReserveStep(plan.b).run(t.Context(), clustertest.Silent); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Errorf("in its project: %v", err)
	}
	empty := hetznertest.NewStore()
	defer empty.Close()
	tools.Hetzner = empty.Client(nil)
	if err := check(); err != nil {
		t.Errorf("with nothing of the cluster alive: %v", err)
	}
	if err := plan.b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	var other *claims.OtherProjectError
	if err := check(); !errors.As(err, &other) || !strings.Contains(err.Error(), "the token is of another project") {
		t.Errorf("with another project's token: %v", err)
	}
	empty.Put("networks", 9, schema.Network{Name: "k8s", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	if err := check(); err != nil {
		t.Errorf("where only the reservation was deleted: %v", err)
	}
}

// --yes deletes a management cluster that does not answer. One that was not even asked, because another answers in its place, stays.
func TestCleanAsksTheRecordedManagementCluster(t *testing.T) {
	w := newPivotWorld(t)
	mustPivot(t, w)
	w.b.tools.Consent = true
	record := ownership.Record{Cluster: "k8s",
		Management: &ownership.Management{Provider: w.b.tools.Management.Name(), Name: "k8s-mgmt", UID: "its-own"}}
	if err := record.Write(w.b.tools.Files); err != nil {
		t.Fatal(err)
	}
	_, err := newCleanStep(w.b).run(t.Context(), w.say)
	var wrong *management.WrongManagementError
	if !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	if _, err := w.b.tools.Files.Read(platform.ManagementKubeconfig); err != nil {
		t.Error("the kubeconfig of the management cluster was removed")
	}
}
