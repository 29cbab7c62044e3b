package forecast_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Before the pivot a run applies the manifests, and the step apply reports what that does: the cluster is not asked.
func TestNoDeviationsBeforeThePivot(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	b, err := planning.New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clustertest.Run(t, b.Plan.Graph, b.Plan.Bootstrap, journal, nil); err != nil {
		t.Fatal(err)
	}
	cfg := w.Config()
	clustertest.Configure(t, &cfg, "KUBERNETES_VERSION=v1.33.5")
	changed, err := planning.New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	found := forecast.Compare(t.Context(), changed, journal, settings.Configuration{Config: cfg}, nil, nil)
	if len(found.Deviations) > 0 || found.Uncompared != "" {
		t.Errorf("got %+v", found)
	}
}
