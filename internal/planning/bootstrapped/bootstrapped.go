// Package bootstrapped runs the bootstrap in a fake environment, for tests of what works on a cluster that exists.
package bootstrapped

import (
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/steps"
)

// Run runs the bootstrap, or some of its targets.
func Run(t *testing.T, w *clustertest.Environment, cfg config.Config, journal flow.Journal,
	targets ...string) (*flow.Report, error) {
	t.Helper()
	plan, err := steps.New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if len(targets) == 0 {
		targets = plan.Bootstrap
	}
	return clustertest.Run(t, plan.Graph, targets, journal, nil)
}
