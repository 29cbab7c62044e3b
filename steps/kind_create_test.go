package steps

import (
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// TestManagementIsKnownByItsIdentity has another cluster answer where the management cluster was.
func TestManagementIsKnownByItsIdentity(t *testing.T) {
	w := clustertest.New(t)
	b := newSet(w.Config(), w.Tools(), render.Sources{})
	if err := b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	m := Management{Provider: "fake", Name: "k8s-mgmt", Kubeconfig: platform.ManagementKubeconfig, UID: "management"}
	if v := b.verifyManagement(t.Context(), m); v.Answer() != flow.AnswerHolds {
		t.Errorf("of the cluster itself it says %v: %s, %v", v.Answer(), v.Reason(), v.Err())
	}
	m.UID = "an earlier one"
	if v := b.verifyManagement(t.Context(), m); v.Answer() != flow.AnswerGone {
		t.Errorf("of another cluster in its place it says %v: %s, %v", v.Answer(), v.Reason(), v.Err())
	}
}
