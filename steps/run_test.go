package steps

import (
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// runPlan runs the bootstrap.
func runPlan(t *testing.T, w *clustertest.Environment, cfg config.Config, journal flow.Journal,
	observe func(flow.Event)) (*flow.Report, error) {
	t.Helper()
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	return clustertest.Run(t, plan.Graph, plan.Bootstrap, journal, observe)
}

// runTargets runs some steps of the bootstrap.
func runTargets(t *testing.T, w *clustertest.Environment, cfg config.Config, tools platform.Tools, journal flow.Journal,
	targets ...string) (*flow.Report, error) {
	t.Helper()
	plan, err := New(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	return clustertest.Run(t, plan.Graph, targets, journal, nil)
}
