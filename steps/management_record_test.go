package steps

import (
	"errors"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
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

// --yes deletes a management cluster that does not answer. One that was not even asked, because another answers in its
// place, stays.
func TestCleanAsksTheRecordedManagementCluster(t *testing.T) {
	w := newPivotWorld(t)
	mustPivot(t, w)
	w.b.tools.Consent = true
	record := ownership.Record{Cluster: "k8s",
		Management: &ownership.Management{Provider: w.b.tools.Management.Name(), Name: "k8s-mgmt", UID: "its-own"}}
	if err := record.Write(w.b.tools.Files); err != nil {
		t.Fatal(err)
	}
	_, err := w.b.runClean(t.Context(), w.say)
	var wrong *connect.WrongManagementError
	if !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	if _, err := w.b.tools.Files.Read(platform.ManagementKubeconfig); err != nil {
		t.Error("the kubeconfig of the management cluster was removed")
	}
}
