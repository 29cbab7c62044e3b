package pivot

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// compareWithCopy compares every object on the target with the copy, while the target is paused. What can be mended
// without doubt is: lost labels and annotations, a Secret that stayed behind. Everything else stops the pivot.
func compareWithCopy(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say,
	s clusters) error {
	copied, err := records.PivotCopyOf(tools).All()
	if err != nil {
		return err
	}
	if len(copied) == 0 {
		say("there is no copy to compare with")
	}
	wrong, err := apply.RepairCopies(ctx, say, s.target, copied)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("cluster %s does not hold what was moved: %s%s; the cluster stays paused: "+
			"put right what differs, or, where it is well so, unpause the Cluster object (spec.paused), and run pivot again",
			cfg.ClusterName, strings.Join(wrong, "; "), whereTheCopyIs(tools))
	}
	return nil
}
