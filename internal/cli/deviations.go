package cli

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/drift"
	"github.com/slipway-k8s/slipway/internal/planning"
)

// compareWithCluster names each value of the configuration that the cluster does not have, and refuses a run that asks
// for a change which it would not make. Nothing was changed then.
func compareWithCluster(ctx context.Context, r *running, b planning.Bootstrap) error {
	words := r.asked
	if words == nil {
		words = []string{}
	}
	found := drift.Compare(ctx, b, r.journal(), r.cfg, words, r.begun)
	found.WithoutSecrets(r.console.hide)
	if !found.Refused {
		if found.Uncompared != "" {
			r.hub.Note("%s", drift.UncomparedHead+found.Uncompared)
		}
		for _, d := range found.Deviations {
			r.hub.Note("%s", d)
		}
		return nil
	}
	lines := append(found.Lines(),
		"nothing was changed; a single step (access, cilium, image and others) can still be run")
	return usage.Errorf("%s", strings.Join(lines, "\n"))
}
