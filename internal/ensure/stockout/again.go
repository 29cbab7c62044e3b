package stockout

import (
	"context"
	"time"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// orderPause is the least time between two orders of the same servers that CAPH does not order again by itself.
const orderPause = time.Minute

// ordersOnce tells whether the configured CAPH orders a server that is out of stock only once: v1.0.12 and newer. Of
// older ones nothing has to be read.
func (w *Watch) ordersOnce() bool {
	v, err := semver.ParseTolerant(w.Cfg.CAPHVersion)
	return err == nil && v.GTE(semver.Version{Major: 1, Minor: 0, Patch: 12})
}

// orderAgain has CAPH order the servers again that it has given up: it looks at a machine again when that changes, so
// an annotation is set. Machines that CAPH orders again by itself are left to it.
func (w *Watch) orderAgain(ctx context.Context, mgmt *kube.Cluster, stuck []member) error {
	if time.Since(w.ordered) < orderPause {
		return nil
	}
	for _, m := range stuck {
		if !capi.GivenUp(m.server) {
			continue
		}
		w.ordered = time.Now()
		err := merge(ctx, mgmt, m.server, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{capi.OrderedAgainAnnotation: w.ordered.UTC().Format(time.RFC3339)}}})
		if err != nil {
			return err
		}
	}
	return nil
}
